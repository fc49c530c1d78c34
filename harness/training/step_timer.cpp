#include "harness/training/step_timer.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "harness/communicator/communicator.hpp"

namespace bnlab {
namespace {

// Linear interpolation between order statistics.
double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

}  // namespace

StepTimer::Mark StepTimer::now() const {
  Mark mark{std::chrono::steady_clock::now(), nullptr};
  if (device_.is_cuda()) {
    mark.event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    mark.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return mark;
}

double StepTimer::seconds(const Mark& from, const Mark& to) const {
  return device_.is_cuda() ? from.event->elapsedTime(*to.event) * 1e-3
                           : std::chrono::duration<double>(to.time - from.time).count();
}

void StepTimer::begin_step() {
  current_[0] = now();
}

void StepTimer::end(Part part) {
  current_[static_cast<size_t>(part) + 1] = now();
}

void StepTimer::end_step() {
  current_.back() = now();
  steps_.push_back(current_);
}

Json StepTimer::throughput(int64_t warmup, int64_t images, Communicator& communicator) const {
  const auto skipped = std::min<size_t>(static_cast<size_t>(warmup), steps_.size());
  const size_t measured = steps_.size() - skipped;
  if (measured == 0) {
    return nullptr;
  }
  if (device_.is_cuda()) {
    steps_.back().back().event->synchronize();
  }
  at::Tensor own = at::empty({static_cast<int64_t>(measured)}, at::kDouble);
  std::array<std::vector<double>, kParts + 1> parts;  // the last one holds what is in no part
  for (size_t i = 0; i < measured; ++i) {
    const Marks& marks = steps_[skipped + i];
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].push_back(seconds(marks[p], marks[p + 1]));
    }
    own[static_cast<int64_t>(i)] = seconds(marks.front(), marks.back());
  }
  // A step is over when its slowest rank is.
  const at::Tensor all = communicator.all_gather(own.to(device_), Purpose::control).cpu();  // [ranks, steps]
  const at::Tensor slowest = std::get<0>(all.max(0)).contiguous();
  const double* values = slowest.const_data_ptr<double>();
  const std::vector<double> times(values, values + measured);
  const double median = quantile(times, 0.5);
  Json seconds = Json::object();
  for (size_t p = 0; p < parts.size(); ++p) {
    seconds[p < kParts ? kPartNames[p] : "other"] = quantile(parts[p], 0.5);
  }
  return {{"images_per_s", static_cast<double>(images) / median},
          {"step_time_s",
           {{"median", median},
            {"p10", quantile(times, 0.1)},
            {"p90", quantile(times, 0.9)},
            {"slowest_rank", std::get<0>(all.median(1)).argmax().item<int64_t>()}}},
          {"steps_measured", measured},
          {"warmup_steps", skipped},
          {"seconds", seconds}};
}

}  // namespace bnlab
