#include "harness/training/timing/step_timer.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace bnlab {
namespace {

// The largest over the ranks of each of the numbers [n], on rank 0; undefined elsewhere. They travel in
// pieces, of which rank 0 receives at most kReceived numbers at once.
at::Tensor largest_of_ranks(const at::Tensor& own, at::Device device, Communicator& communicator) {
  constexpr int64_t kReceived = int64_t{1} << 20;
  std::vector<at::Tensor> largest;
  for (const at::Tensor& piece : own.split(std::max<int64_t>(kReceived / communicator.size(), 1))) {
    const at::Tensor all = communicator.gather(piece.to(device), 0, Purpose::control);  // [ranks, piece]
    largest.push_back(all.defined() ? all.amax(0).cpu() : all);
  }
  return largest.front().defined() ? at::cat(largest) : at::Tensor();
}

}  // namespace

void StepTimer::mark(Part ended) {
  Marks& step = ring_[ended_ % kRing];
  if (step.used == step.marks.size()) step.marks.emplace_back();
  step.parts.push_back(ended);
  Mark& now = step.marks[step.used++];
  now.time = std::chrono::steady_clock::now();
  if (!device_.is_cpu()) {
    if (!now.event)
      now.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the kind that keeps the time
    now.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

double StepTimer::seconds(const Mark& from, const Mark& to) const {
  return device_.is_cpu() ? std::chrono::duration<double>(to.time - from.time).count()
                          : from.event->elapsedTime(*to.event) * 1e-3;
}

void StepTimer::read_oldest() {
  const auto& [marks, parts, used] = ring_[steps_.size() % kRing];
  if (!device_.is_cpu()) marks[used - 1].event->synchronize();
  Seconds step{{}, seconds(marks.front(), marks[used - 1])};
  for (size_t i = 1; i < used; ++i)
    step.parts[static_cast<size_t>(parts[i])] += seconds(marks[i - 1], marks[i]);
  steps_.push_back(step);
}

void StepTimer::begin_step() {
  if (ended_ - steps_.size() == kRing) read_oldest();
  ring_[ended_ % kRing].used = 0;
  ring_[ended_ % kRing].parts.clear();
  mark(kParts);
}

void StepTimer::end(Part part) {
  mark(part);
}

void StepTimer::end_step() {
  mark(kParts);
  ++ended_;
}

Json StepTimer::throughput(int64_t warmup, int64_t images, Communicator& communicator) {
  while (steps_.size() < ended_) read_oldest();
  const auto skipped = std::min<size_t>(static_cast<size_t>(warmup), steps_.size());
  const size_t measured = steps_.size() - skipped;
  if (measured == 0) return nullptr;
  at::Tensor own = at::empty({static_cast<int64_t>(measured)}, at::kDouble);
  std::array<std::vector<double>, kParts + 1> parts;  // the last one holds what is in no part
  for (size_t i = 0; i < measured; ++i) {
    const Seconds& step = steps_[skipped + i];
    for (size_t p = 0; p < parts.size(); ++p) parts[p].push_back(step.parts[p]);
    own[static_cast<int64_t>(i)] = step.whole;
  }
  // A step is over when its slowest rank is.
  const at::Tensor slowest = largest_of_ranks(own, device_, communicator);
  const at::Tensor medians = communicator.gather(own.median().view({1}).to(device_), 0, Purpose::control);
  if (communicator.rank() != 0) return nullptr;
  const double* values = slowest.const_data_ptr<double>();
  const std::vector<double> times(values, values + measured);
  const double median = quantile(times, 0.5);
  Json seconds = Json::object();
  for (size_t p = 0; p < parts.size(); ++p)
    seconds[p < kParts ? kPartNames[p] : "other"] = quantile(parts[p], 0.5);
  return {{"images_per_s", static_cast<double>(images) / median},
          {"step_time_s",
           {{"median", median},
            {"p10", quantile(times, 0.1)},
            {"p90", quantile(times, 0.9)},
            {"slowest_rank", medians.argmax().item<int64_t>()}}},
          {"steps_measured", measured},
          {"warmup_steps", skipped},
          {"seconds", seconds}};
}

}  // namespace bnlab
