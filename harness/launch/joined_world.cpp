// Runs a matrix as one rank of a world that torchrun, mpirun or srun made. Every process goes through the
// same runs in the same order; rank 0 decides which, and shares the decision through the store, so that
// the other ranks need not see the results folder.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "harness/error.hpp"
#include "harness/launch/launch_parts.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/selection.hpp"
#include "harness/records/environment.hpp"
#include "harness/records/results_lock.hpp"

namespace bnlab {
namespace {

// Keeps the progress line moving while this thread trains.
class Ticker {
 public:
  explicit Ticker(Progress& progress)
      : thread_([&progress](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            progress.update();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
          }
        }) {}

 private:
  std::jthread thread_;
};

// The options of the one placement that this world can give: all its ranks, one run at a time.
LaunchOptions options_of_world(LaunchOptions options, const EnvironmentWorld& world) {
  options.ranks = world.rendezvous.size;
  options.jobs = 1;
  if (options.threads == 0) {
    const char* set_by_launcher = std::getenv("OMP_NUM_THREADS");
    options.threads =
        set_by_launcher != nullptr ? std::atoi(set_by_launcher) : usable_cores() / world.local_size;
    options.threads = std::max(1, options.threads);
  }
  return options;
}

// The runs that fit the world, in order; the others are named in `remarks`.
std::vector<PlacedRun> runs_that_fit(const Experiment& experiment, const LaunchOptions& options,
                                     std::vector<std::string>& remarks) {
  const std::string size = std::to_string(options.ranks);
  std::vector<RunSpec> fitting;
  for (const RunSpec& run : select_runs(experiment, options.only)) {
    if (run.ranks.value_or(options.ranks) != options.ranks) {
      remarks.push_back(run.id + " is left out: its spec asks for " + std::to_string(*run.ranks) +
                        " ranks, and this world has " + size);
    } else if (run.towers() % options.ranks != 0) {
      remarks.push_back(run.id + " is left out: the " + size + " ranks of this world do not divide its " +
                        std::to_string(run.towers()) + " towers");
    } else {
      fitting.push_back(run);
    }
  }
  const auto gpus = [&] { return visible_gpus() > 0 ? options.ranks : 0; };  // others may be on other hosts
  return place_runs(experiment, fitting, options, gpus, usable_cores(), remarks);
}

class WorldMatrix {
 public:
  WorldMatrix(const Experiment& experiment, const LaunchOptions& options, const EnvironmentWorld& world)
      : experiment_(experiment), options_(options_of_world(options, world)), world_(world) {}

  LaunchSummary run() {
    std::vector<std::string> remarks;
    const std::vector<PlacedRun> fitting = runs_that_fit(experiment_, options_, remarks);
    const Json plan = agree_on_plan(fitting);
    std::vector<PlacedRun> chosen;
    for (const size_t index : plan.at("runs")) {
      chosen.push_back(fitting.at(index));
    }
    summary_.leads = leads();
    summary_.skipped = static_cast<int>(fitting.size() - chosen.size());
    if (leads()) {
      progress_.emplace(static_cast<int>(chosen.size()), total_work(chosen), 1);
      std::for_each(remarks.begin(), remarks.end(),
                    [&](const auto& text) { progress_->say("note: " + text); });
      environment_ = environment_record(library_versions());
    }
    for (const PlacedRun& run : chosen) {
      run_one(run, plan.at("session").get<std::string>() + "/" + run.spec.id);
    }
    return summary_;
  }

 private:
  bool leads() const { return world_.rendezvous.rank == 0; }

  // {"error", "session", "runs"}: what rank 0 decided. If it could not, every rank throws its error.
  Json agree_on_plan(const std::vector<PlacedRun>& fitting) {
    Json plan{
        {"error", nullptr}, {"session", std::to_string(getpid()) + "-" + now_utc()}, {"runs", Json::array()}};
    if (leads()) {
      try {
        lock_.emplace(options_.results_dir);
        for (size_t i = 0; i < fitting.size(); ++i) {
          if (!is_done(fitting[i].folder, options_.retry)) {
            plan["runs"].push_back(i);
          }
        }
      } catch (const Error& error) {
        plan["error"] = error.what();
      }
    }
    Rendezvous place = world_.rendezvous;
    place.prefix = "plan-" + std::to_string(world_.restart);
    plan = Json::parse(share_text(place, plan.dump()));
    if (!plan.at("error").is_null()) {
      throw Error(Error::Kind::environment, "rank 0: " + plan.at("error").get<std::string>());
    }
    return plan;
  }

  void run_one(const PlacedRun& run, const std::string& prefix) {
    RankJob job;
    job.spec = run.spec;
    job.rendezvous = world_.rendezvous;
    job.rendezvous.prefix = prefix;
    job.rendezvous.timeout = collective_timeout(run.spec);
    job.device = run.placement.device;
    job.data_dir = options_.data_dir;
    job.run_dir = run.folder;
    job.threads = run.threads;
    const RankReport report = leads() ? run_and_record(run, job) : run_rank(job);
    if (!leads()) {
      count(summary_, status_named(report.status));
    }
    if (report.lost_contact) {
      throw Error(Error::Kind::communication,
                  run.spec.id + ": " + report.message + "; this world is broken, start it again to go on");
    }
  }

  RankReport run_and_record(const PlacedRun& run, const RankJob& job) {
    empty_folder(run.folder);
    RunAccount account = begin_account(experiment_, options_, run, world_.launcher, environment_);
    const auto start = std::chrono::steady_clock::now();
    progress_->started(run.spec, run.folder + "/" + kMetricsFile);
    RankReport report;
    {
      const Ticker ticker(*progress_);
      report = run_rank(job);
    }
    account.wall_time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    account.outcome = {status_named(report.status), report.message, std::nullopt, "", {}};
    account.result = report.result;
    account.notes = report.notes;
    write_record(account, run.folder);
    count(summary_, account.outcome.status);
    progress_->finished(run.spec, account.outcome, account.wall_time_s, account.result);
    return report;
  }

  const Experiment& experiment_;
  const LaunchOptions options_;
  const EnvironmentWorld& world_;
  std::optional<ResultsLock> lock_;   // rank 0
  std::optional<Progress> progress_;  // rank 0
  Json environment_;
  LaunchSummary summary_;
};

}  // namespace

LaunchSummary launch_in_world(const Experiment& experiment, const LaunchOptions& options,
                              const EnvironmentWorld& world) {
  return WorldMatrix(experiment, options, world).run();
}

}  // namespace bnlab
