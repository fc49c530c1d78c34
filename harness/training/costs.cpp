#include "harness/training/costs.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace bnlab {
namespace {

constexpr size_t kAlignment = 64;
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void release(void* block) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

// oneDNN requires that a block's context is the block itself, so its size is asked of malloc.
class AccountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &release, at::kCPU};
    }
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, bytes) != 0) {
      throw std::bad_alloc();
    }
    const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(block));
    int64_t peak = peak_bytes;
    while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
    }
    return {block, block, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

void reset_peak_memory([[maybe_unused]] at::Device device) {
  peak_bytes = live_bytes.load();
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  }
#endif
}

int64_t peak_memory_bytes([[maybe_unused]] at::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  }
#endif
  return peak_bytes;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::vector<int64_t> of_all_ranks(int64_t own, World& world) {
  const at::Tensor number = at::full({1}, own, at::TensorOptions().device(world.device()).dtype(at::kLong));
  const at::Tensor all = world.gradients().all_gather(number, Purpose::control).cpu().flatten();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

// The largest over the ranks of each of the numbers [n], on rank 0; undefined elsewhere. They travel in pieces, of which
// rank 0 receives at most kReceived numbers at once.
at::Tensor largest_of_ranks(const at::Tensor& own, at::Device device, Communicator& communicator) {
  constexpr int64_t kReceived = int64_t{1} << 20;
  std::vector<at::Tensor> largest;
  for (const at::Tensor& piece : own.split(std::max<int64_t>(kReceived / communicator.size(), 1))) {
    const at::Tensor all = communicator.gather(piece.to(device), 0, Purpose::control);  // [ranks, piece]
    largest.push_back(all.defined() ? all.amax(0).cpu() : all);
  }
  return largest.front().defined() ? at::cat(largest) : at::Tensor();
}

// Linear interpolation between order statistics.
double quantile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

}  // namespace

void account_cpu_memory() {
  static AccountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

void Costs::begin(int64_t step) {
  first_step_ = step;
  peak_before_ = 0;
  reset_peak_memory(world_.device());
  world_.ledger().clear();
}

void Costs::pause() {
  peak_before_ = std::max(peak_before_, peak_memory_bytes(world_.device()));
}

void Costs::resume() {
  reset_peak_memory(world_.device());
}

void Costs::describe(State& state, int64_t steps_done) {
  if (!state.same_ranks()) {
    begin(steps_done);
    return;
  }
  const at::Tensor peak = at::full({}, peak_before_, at::kLong);
  state.tensor("costs.peak_memory_bytes", peak, Across::own);
  peak_before_ = peak.item<int64_t>();
  state.value("costs.first_step", first_step_);
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const auto purpose = static_cast<Purpose>(p);
    Traffic traffic = world_.ledger().of(purpose);
    state.value(std::string("costs.") + kPurposeNames[p] + ".collectives", traffic.collectives);
    state.value(std::string("costs.") + kPurposeNames[p] + ".bytes", traffic.bytes);
    world_.ledger().set(purpose, traffic);
  }
}

Json Costs::memory() {
  const int64_t tensors = std::max(peak_before_, peak_memory_bytes(world_.device()));
  const int64_t resident = peak_rss_bytes();
  return {{"peak_memory_bytes", of_all_ranks(tensors, world_)},
          {"peak_rss_bytes", of_all_ranks(resident, world_)}};
}

Json Costs::traffic(int64_t steps_done) const {
  const auto steps = static_cast<double>(std::max<int64_t>(steps_done - first_step_, 1));
  Json all = Json::object();
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const auto purpose = static_cast<Purpose>(p);
    if (purpose != Purpose::evaluation && purpose != Purpose::control) {
      const Traffic& traffic = world_.ledger().of(purpose);
      all[kPurposeNames[p]] = {{"collectives_per_step", static_cast<double>(traffic.collectives) / steps},
                               {"bytes_per_step", static_cast<double>(traffic.bytes) / steps}};
    }
  }
  return all;
}

void StepTimer::set(size_t mark) {
  Mark& now = ring_[ended_ % kRing][mark];
  now.time = std::chrono::steady_clock::now();
  if (!device_.is_cpu()) {
    if (!now.event) {
      now.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the kind that keeps the time
    }
    now.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

double StepTimer::seconds(const Mark& from, const Mark& to) const {
  return device_.is_cpu() ? std::chrono::duration<double>(to.time - from.time).count()
                          : from.event->elapsedTime(*to.event) * 1e-3;
}

void StepTimer::read_oldest() {
  const Marks& marks = ring_[steps_.size() % kRing];
  if (!device_.is_cpu()) {
    marks.back().event->synchronize();
  }
  Seconds step{{}, seconds(marks.front(), marks.back())};
  for (size_t p = 0; p < step.parts.size(); ++p) {
    step.parts[p] = seconds(marks[p], marks[p + 1]);
  }
  steps_.push_back(step);
}

void StepTimer::begin_step() {
  if (ended_ - steps_.size() == kRing) {
    read_oldest();
  }
  set(0);
}

void StepTimer::end(Part part) {
  set(static_cast<size_t>(part) + 1);
}

void StepTimer::end_step() {
  set(kParts + 1);
  ++ended_;
}

Json StepTimer::throughput(int64_t warmup, int64_t images, Communicator& communicator) {
  while (steps_.size() < ended_) {
    read_oldest();
  }
  const auto skipped = std::min<size_t>(static_cast<size_t>(warmup), steps_.size());
  const size_t measured = steps_.size() - skipped;
  if (measured == 0) {
    return nullptr;
  }
  at::Tensor own = at::empty({static_cast<int64_t>(measured)}, at::kDouble);
  std::array<std::vector<double>, kParts + 1> parts;  // the last one holds what is in no part
  for (size_t i = 0; i < measured; ++i) {
    const Seconds& step = steps_[skipped + i];
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].push_back(step.parts[p]);
    }
    own[static_cast<int64_t>(i)] = step.whole;
  }
  // A step is over when its slowest rank is.
  const at::Tensor slowest = largest_of_ranks(own, device_, communicator);
  const at::Tensor medians = communicator.gather(own.median().view({1}).to(device_), 0, Purpose::control);
  if (communicator.rank() != 0) {
    return nullptr;
  }
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
            {"slowest_rank", medians.argmax().item<int64_t>()}}},
          {"steps_measured", measured},
          {"warmup_steps", skipped},
          {"seconds", seconds}};
}

}  // namespace bnlab
