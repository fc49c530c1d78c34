#include "harness/launch/launch.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <thread>

#include "harness/communicator/host/environment_world.hpp"
#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/launch/selection.hpp"
#include "harness/store/records.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::seconds kLookAgainAfter{60};

// The value of rank 0, on every rank of the world.
Json agreed(const std::optional<EnvironmentWorld>& world, const Json& own) {
  if (!world) return own;
  Rendezvous place = world->rendezvous;
  place.prefix = "tuning";
  place.timeout = world->meeting_timeout;
  return Json::parse(share_text(place, own.dump()));
}

// Asks for all of the runs that tune: filters are made for the matrix, and so are the ids of runs to make
// again.
LaunchRequest for_tuning(LaunchRequest request) {
  request.only.clear();
  request.slice.clear();
  std::erase_if(request.redo, [](const std::string& which) { return which != "failed"; });
  return request;
}

std::string choice_text(const TunedGroup& group) {
  const auto tried = mapped(group.candidates, [](const Candidate& candidate) {
    return setting_text(candidate.setting) + ": " + fixed(candidate.mean(), 3);
  });
  return group.name + ": " + setting_text(group.chosen().setting) + "  (" + joined(tried) + ")" +
         (group.at_edge.empty() ? "" : "  at the edge of the grid");
}

}  // namespace

void LaunchSummary::count(Status status) {
  if (status == Status::ok)
    ++finished;
  else if (status != Status::interrupted)
    ++failed;
}

LaunchSummary launch(const Experiment& experiment, const LaunchRequest& request) {
  if (request.jobs < 1 && request.jobs != kAutoJobs)
    throw Error(Error::Kind::usage, "--jobs: expected at least 1, got " + std::to_string(request.jobs));
  const auto world = joined_world(request);
  return world ? launch_in_world(experiment, request, *world) : launch_own_ranks(experiment, request);
}

std::optional<EnvironmentWorld> joined_world(const LaunchRequest& request) {
  if (request.ranks > 0)  // the user's own word comes before the environment's
    return std::nullopt;
  auto world = environment_world(process_environment());
  if (world) {
    start_anew_with(rank_settings(gpus_are_shared()));
    check_address(*world);
  }
  return world;
}

LaunchSummary tune(Experiment& experiment, const LaunchRequest& request) {
  LaunchSummary summary;
  if (!experiment.tuning) return summary;
  const auto world = joined_world(request);
  summary.leads = !world || world->rendezvous.rank == 0;
  const bool leads = summary.leads;
  // Where rank 0 has none to give, every rank throws its error.
  const auto scores = [&](const std::function<TuningScores()>& of_rank_0) {
    Json shared{{"error", nullptr}, {"scores", Json::object()}};
    try {
      if (leads) shared["scores"] = scores_json(of_rank_0());
    } catch (const Error& error) {
      if (!world) throw;
      shared["error"] = error.what();
    }
    shared = agreed(world, shared);
    if (!shared.at("error").is_null())
      throw Error(Error::Kind::usage, "rank 0: " + shared.at("error").get<std::string>());
    return read_scores(shared.at("scores"), kTuningFile);
  };
  settle(experiment, scores([&] { return kept_scores(experiment, request.results_dir); }));
  if (experiment.tuning->is_settled()) {
    if (leads) keep_scores(experiment, {}, request.results_dir);
    return summary;
  }
  check_before_tuning(experiment, request.only);
  if (summary.leads) std::cerr << "first, " << experiment.tuning->sentence() << "\n";
  LaunchRequest asked = for_tuning(request);
  Experiment runs = experiment.tuning->runs;
  std::vector<Record> records;
  TuningScores all;
  size_t made = 0;
  do {
    runs.runs = needed_runs(*experiment.tuning, all);
    made = runs.runs.size();
    summary = launch(runs, asked);
    asked.redo.clear();
    while (!summary.interrupted &&
           agreed(world, summary.held) > 0) {  // the choice needs the runs of others, too
      std::this_thread::sleep_for(std::min(kLookAgainAfter, request.steal_after));
      summary = launch(runs, asked);
    }
    if (summary.interrupted) return summary;
    records = list_records(request.results_dir, runs.name);
    all = scores([&] { return scores_of(*experiment.tuning, records); });
    settle(experiment, all);
  } while (!experiment.tuning->is_settled() && needed_runs(*experiment.tuning, all).size() > made);
  if (experiment.tuning->is_settled() && summary.leads) {
    keep_scores(experiment, records, request.results_dir);
    for (const TunedGroup& group : experiment.tuning->groups)
      std::cerr << "chosen for " << choice_text(group) << "\n";
    if (experiment.tuning->steps)
      std::cerr << "chosen for all: " << experiment.tuning->length_sentence() << "\n";
  }
  return summary;
}

}  // namespace bnlab
