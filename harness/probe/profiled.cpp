#include "harness/probe/profiled.hpp"

#include <ATen/Context.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "harness/communicator/world.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/turns.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/tf32.hpp"
#include "harness/training/libraries.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

void begin_profile(const std::set<ActivityType>& activities) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
}

bool is_of_gpu(const kineto::KinetoEvent& event) {
  switch (static_cast<libkineto::ActivityType>(event.activityType())) {
    case libkineto::ActivityType::CONCURRENT_KERNEL:
    case libkineto::ActivityType::GPU_MEMCPY:
    case libkineto::ActivityType::GPU_MEMSET:
      return true;
    default:
      return false;
  }
}

bool is_of_cpu(const kineto::KinetoEvent& event) {
  return static_cast<libkineto::ActivityType>(event.activityType()) == libkineto::ActivityType::CPU_OP;
}

std::vector<DeviceWork> work_in(const kineto::ProfilerResult& profile, Device device) {
  std::vector<DeviceWork> work;
  for (const kineto::KinetoEvent& event : profile.events()) {
    if (device == Device::cuda ? !is_of_gpu(event) : !is_of_cpu(event)) continue;
    const uint64_t lane =
        device == Device::cuda ? static_cast<uint64_t>(event.deviceResourceId()) : event.startThreadId();
    const auto begin = static_cast<int64_t>(event.startNs());
    work.push_back({.name = event.name(),
                    .lane = lane,
                    .begin_ns = begin,
                    .end_ns = begin + static_cast<int64_t>(event.durationNs())});
  }
  return work;
}

// How long anything of `work`, which is sorted by its beginnings, is under way that `counts`.
template <class Counts>
int64_t covered(const std::vector<DeviceWork>& work, Counts counts) {
  int64_t total = 0, until = std::numeric_limits<int64_t>::min();
  for (const DeviceWork& each : work) {
    if (!counts(each)) continue;
    total += std::max<int64_t>(0, each.end_ns - std::max(each.begin_ns, until));
    until = std::max(until, each.end_ns);
  }
  return total;
}

bool is_of_nccl(const DeviceWork& work) {
  return work.name.starts_with("nccl");
}

struct OwnTime {
  int64_t own_ns = 0, count = 0;
};

// By name, the longest first, of work that is sorted by its beginnings, and of what begins at once by its
// ends, the last first.
std::vector<std::pair<std::string, OwnTime>> own_times(const std::vector<DeviceWork>& work) {
  std::map<std::string, OwnTime> times;
  std::map<uint64_t, std::vector<const DeviceWork*>> open_of;  // the innermost last
  for (const DeviceWork& each : work) {
    auto& open = open_of[each.lane];
    while (!open.empty() && open.back()->end_ns <= each.begin_ns) open.pop_back();
    if (!open.empty() && each.end_ns <= open.back()->end_ns)
      times[open.back()->name].own_ns -= each.end_ns - each.begin_ns;
    OwnTime& own = times[each.name];
    own.own_ns += each.end_ns - each.begin_ns;
    own.count += 1;
    open.push_back(&each);
  }
  std::vector<std::pair<std::string, OwnTime>> sorted(times.begin(), times.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& entry) { return entry.second.own_ns; });
  return sorted;
}

}  // namespace

Json shares_of_work(std::vector<DeviceWork> work, int64_t steps) {
  std::ranges::sort(work, [](const DeviceWork& a, const DeviceWork& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  const auto of_step = [&](int64_t ns) {
    return static_cast<double>(ns) * 1e-9 / static_cast<double>(steps);
  };
  const int64_t end = std::ranges::max_element(work, {}, &DeviceWork::end_ns)->end_ns;
  const int64_t span = end - work.front().begin_ns;
  const int64_t busy = covered(work, [](const DeviceWork&) { return true; });
  Json rows = Json::array();
  for (const auto& [name, time] : own_times(work)) {
    rows.push_back({{"name", name},
                    {"own_s", of_step(time.own_ns)},
                    {"count", static_cast<double>(time.count) / static_cast<double>(steps)}});
  }
  return {{"step_s", of_step(span)},
          {"idle_s", of_step(span - busy)},
          {"nccl_s", of_step(covered(work, is_of_nccl))},
          {"nccl_alone_s", of_step(busy - covered(work, std::not_fn(is_of_nccl)))},
          {"work", rows}};
}

std::vector<Json> profiled_steps(const RunSpec& asked, const Rendezvous& rendezvous, Device device,
                                 const std::string& data_dir, int64_t after, int64_t steps,
                                 const std::string& file) {
  const RunSpec run = without_end(asked);
  Rendezvous at = rendezvous;
  at.prefix = "profile";
  at::globalContext().setBenchmarkCuDNN(kCudnnBenchmark);
  allow_tf32(run.tf32);
  const auto world = join_world(at, device == Device::cuda ? at::kCUDA : at::kCPU);
  const bool writes = rendezvous.rank == 0 && !file.empty();
  std::set<ActivityType> activities;
  if (device == Device::cuda) activities.insert(ActivityType::CUDA);
  if (device == Device::cpu || writes) activities.insert(ActivityType::CPU);  // which takes the host time
  // CUPTI begins before there is any graph, and stays: it loses what it has not seen being recorded.
  setenv("TEARDOWN_CUPTI", "0", 1);
  begin_profile(activities);
  kineto::disableProfiler();
  std::unique_ptr<kineto::ProfilerResult> profile;
  {
    Checkpoints checkpoints(run, nullptr, "", *world);
    Trainer trainer(run, data_dir, *world, checkpoints, RunLog());
    trainer.train_steps(after);
    world->barrier();
    wait_for_device(world->device());
    begin_profile(activities);
    trainer.train_steps(steps);
    wait_for_device(world->device());
    profile = kineto::disableProfiler();
    trainer.end_repeats();  // NCCL does not shut down before the graphs that its exchanges stand in
  }
  world->shutdown();
  if (writes) profile->save(file);
  const std::vector<DeviceWork> work = work_in(*profile, device);
  const Json own = work.empty() ? Json() : shares_of_work(work, steps);
  const std::vector<Json> all =
      mapped(gather_texts(at, own.dump()), [](const std::string& text) { return Json::parse(text); });
  if (std::ranges::any_of(all, [](const Json& rank) { return rank.is_null(); })) {
    throw Error(Error::Kind::environment,
                "the profiler saw no work of the device: on a GPU it needs CUPTI, which must be allowed to "
                "trace (no other profiler at the same time, no simulated GPU)");
  }
  return all;
}

}  // namespace bnlab
