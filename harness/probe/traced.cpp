#include "harness/probe/traced.hpp"

#include <torch/types.h>

#include <chrono>

#include "harness/communicator/world.hpp"
#include "harness/support/json.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

Json activity_json(const std::vector<ActivityEvent>& events) {
  return mapped(events, [](const ActivityEvent& event) {
    return Json{event.name, event.kind, event.begin_ns, event.end_ns, event.bytes, event.purpose};
  });
}

std::vector<ActivityEvent> read_activity(const Json& json, int64_t earlier_ns) {
  std::vector<ActivityEvent> events;
  for (const Json& event : json) {
    events.push_back({.name = event.at(0),
                      .kind = event.at(1),
                      .begin_ns = event.at(2).get<int64_t>() - earlier_ns,
                      .end_ns = event.at(3).get<int64_t>() - earlier_ns,
                      .bytes = event.at(4),
                      .purpose = event.at(5)});
  }
  return events;
}

}  // namespace

std::vector<std::vector<ActivityEvent>> traced_steps(const RunSpec& run, const Rendezvous& rendezvous,
                                                     bool one_clock, const std::string& data_dir,
                                                     int64_t after, int64_t steps) {
  Rendezvous at = rendezvous;
  at.prefix = "trace";
  const auto world = join_world(at, at::kCPU);
  Checkpoints checkpoints(run, nullptr, "", *world);
  Trainer trainer(run, data_dir, *world, checkpoints, RunLog());
  trainer.train_steps(after);
  world->barrier();
  const int64_t met_ns = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  Activity::record();
  trainer.train_steps(steps);
  const Json own{{"met_ns", met_ns}, {"events", activity_json(Activity::take())}};
  world->shutdown();
  const std::vector<Json> all =
      mapped(gather_texts(at, own.dump()), [](const std::string& text) { return Json::parse(text); });
  return mapped(all, [&](const Json& rank) {
    const int64_t earlier =
        one_clock ? 0 : rank.at("met_ns").get<int64_t>() - all.front().at("met_ns").get<int64_t>();
    return read_activity(rank.at("events"), earlier);
  });
}

}  // namespace bnlab
