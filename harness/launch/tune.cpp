#include "harness/launch/tune.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "harness/launch/environment_world.hpp"
#include "harness/mapped.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::seconds kLookAgainAfter{60};

// What rank 0 says, where there are others.
Json agreed(const std::optional<EnvironmentWorld>& world, const Json& own) {
  if (!world) {
    return own;
  }
  Rendezvous place = world->rendezvous;
  place.prefix = "tuning";
  place.timeout = world->meeting_timeout;
  return Json::parse(share_text(place, own.dump()));
}

// All of the runs that tune: filters are made for the matrix, and so are the ids of runs to make again.
LaunchOptions for_tuning(LaunchOptions options) {
  options.only.clear();
  options.slice.clear();
  std::erase_if(options.redo, [](const std::string& which) { return which != "failed"; });
  return options;
}

std::string choice_text(const TunedGroup& group) {
  const auto tried = mapped(group.candidates, [](const Candidate& candidate) {
    return setting_text(candidate.setting) + ": " + fixed(candidate.mean(), 3);
  });
  return group.name + ": " + setting_text(group.chosen().setting) + "  (" + joined(tried) + ")" +
         (group.at_edge.empty() ? "" : "  at the edge of the grid");
}

}  // namespace

LaunchSummary tune(Experiment& experiment, const LaunchOptions& options) {
  LaunchSummary summary;
  if (!experiment.tuning) {
    return summary;
  }
  const auto world = joined_world(options);
  summary.leads = !world || world->rendezvous.rank == 0;
  const auto scores = [&](const TuningScores& of_rank_0) {
    return read_scores(agreed(world, scores_json(summary.leads ? of_rank_0 : TuningScores())), kTuningFile);
  };
  settle(experiment, scores(kept_scores(experiment.name, options.results_dir)));
  if (experiment.tuning->is_settled()) {
    return summary;
  }
  if (summary.leads) {
    std::cerr << "first, " << experiment.tuning->sentence() << "\n";
  }
  LaunchOptions asked = for_tuning(options);
  summary = launch(experiment.tuning->runs, asked);
  asked.redo.clear();
  while (!summary.interrupted &&
         agreed(world, summary.held) > 0) {  // the choice needs the runs of others, too
    std::this_thread::sleep_for(std::min(kLookAgainAfter, options.steal_after));
    summary = launch(experiment.tuning->runs, asked);
  }
  if (summary.interrupted) {
    return summary;
  }
  const Experiment& runs = experiment.tuning->runs;
  const TuningScores all =
      scores(scores_of(*experiment.tuning, list_records(options.results_dir, runs.name)));
  settle(experiment, all);
  if (experiment.tuning->is_settled() && summary.leads) {
    keep_scores(experiment, all, options.results_dir);
    for (const TunedGroup& group : experiment.tuning->groups) {
      std::cerr << "chosen for " << choice_text(group) << "\n";
    }
  }
  return summary;
}

}  // namespace bnlab
