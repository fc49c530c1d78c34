// Runs a matrix as one rank of a world that torchrun, mpirun or srun made. Every process goes through the
// same runs in the same order; rank 0 decides which, and shares the decision through the store, so that
// the other ranks need not see the results folder.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "harness/error.hpp"
#include "harness/launch/books.hpp"
#include "harness/launch/environment_world.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/survey.hpp"
#include "harness/launch/world_fit.hpp"
#include "harness/mapped.hpp"
#include "harness/records/attempts.hpp"
#include "harness/records/code_version.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// What the ranks call a run among themselves. On how many machines they are is for rank 0 to tell: a machine with fewer
// ranks than the others would count more.
std::string name_of(const PlacedRun& run) {
  Placement placement = run.placement;
  placement.nodes = 1;
  return run.spec.id + "/" + placement.name();
}

class JoinedWorld {
 public:
  JoinedWorld(const Experiment& experiment, const LaunchOptions& options, const EnvironmentWorld& world)
      : experiment_(experiment), options_(options_of_world(options, world)), world_(world) {}

  LaunchSummary run() {
    std::vector<std::string> remarks;
    std::vector<PlacedRun> fitting = runs_that_fit(experiment_, options_, world_, remarks);
    const Json plan = agree_on_plan(fitting, remarks);
    const std::vector<PlacedRun> chosen = chosen_runs(fitting, plan);
    summary_.leads = leads();
    summary_.skipped = static_cast<int>(fitting.size() - chosen.size());
    summary_.failed_before = plan.at("failed_before").get<int>();
    if (leads()) {
      books_.emplace(experiment_, options_, world_.launcher, chosen, remarks);
    }
    for (const PlacedRun& run : chosen) {
      run_one(run, plan.at("session").get<std::string>() + "/" + name_of(run));
    }
    shutdown(kept_);
    return summary_;
  }

 private:
  bool leads() const { return world_.rendezvous.rank == 0; }

  // {"error", "code", "session", "runs", "failed_before"}: what rank 0 is and decided. If it could not, every rank throws
  // its error.
  Json agree_on_plan(std::vector<PlacedRun>& fitting, std::vector<std::string>& remarks) {
    Json plan{{"error", nullptr},
              {"code", code_version()},
              {"session", std::to_string(getpid()) + "-" + now_utc()},
              {"runs", Json::array()}};
    if (leads()) {
      try {
        plan["runs"] =
            mapped(by_attempts(runs_to_start(experiment_, fitting, options_, summary_, remarks)), name_of);
      } catch (const Error& error) {
        plan["error"] = error.what();
      }
    }
    plan["failed_before"] = summary_.failed_before;
    Rendezvous place = world_.rendezvous;
    place.prefix = "plan";
    place.timeout = world_.meeting_timeout;
    plan = Json::parse(share_text(place, plan.dump()));
    refuse_if(plan);
    if (const Json own = code_version(); plan.at("code") != own) {
      throw Error(Error::Kind::usage, "rank " + std::to_string(place.rank) + " runs bnlab " + own.dump() +
                                          ", but rank 0 runs " + plan.at("code").dump() +
                                          "; start every rank with the same build");
    }
    return plan;
  }

  // On rank 0. Those that lost contact before come last, lest they keep the others from their turn.
  static std::vector<PlacedRun> by_attempts(std::vector<PlacedRun> runs) {
    std::ranges::stable_sort(runs, {}, [](const PlacedRun& run) { return attempts_without_end(run.folder); });
    return runs;
  }

  // Whether the world runs this one now: rank 0 claims it, and every rank learns in which folder it works.
  bool claimed(PlacedRun& run, const std::string& prefix) {
    Json turn{{"error", nullptr}, {"folder", nullptr}};
    if (leads()) {
      try {
        if (books_->claim(run, summary_) == Books::Turn::ours) {
          turn["folder"] = fs::path(run.folder).filename().string();
        }
      } catch (const Error& error) {
        turn["error"] = error.what();
      }
    }
    Rendezvous place = world_.rendezvous;
    place.prefix = prefix + "/turn";
    place.timeout = collective_timeout(run.spec);
    try {
      turn = Json::parse(share_text(place, turn.dump()));
    } catch (const Error&) {
      if (!turn.at("folder").is_null()) {
        books_->not_started(run);
      }
      throw;
    }
    refuse_if(turn);
    if (turn.at("folder").is_null()) {
      return false;
    }
    run.folder = (fs::path(run.folder).parent_path() / turn.at("folder").get<std::string>()).string();
    return true;
  }

  // What rank 0 could not do, no rank can.
  static void refuse_if(const Json& shared) {
    if (!shared.at("error").is_null()) {
      throw Error(Error::Kind::environment, "rank 0: " + shared.at("error").get<std::string>());
    }
  }

  static std::vector<PlacedRun> chosen_runs(const std::vector<PlacedRun>& fitting, const Json& plan) {
    std::vector<PlacedRun> chosen;
    for (const std::string name : plan.at("runs")) {
      const auto found =
          std::ranges::find_if(fitting, [&](const PlacedRun& run) { return name_of(run) == name; });
      if (found == fitting.end()) {
        throw Error(Error::Kind::usage, "rank 0 asks for the run " + name +
                                            ", which is none of this rank's; start every rank with the same "
                                            "command and the same spec");
      }
      chosen.push_back(*found);
    }
    return chosen;
  }

  void run_one(PlacedRun run, const std::string& prefix) {
    if (!claimed(run, prefix)) {
      return;
    }
    RankJob job{.spec = run.spec,
                .rendezvous = world_.rendezvous,
                .device = run.placement.device,
                .inputs = run.inputs,
                .data_dir = options_.data_dir,
                .run_dir = run.folder,
                .threads = run.threads};
    job.rendezvous.prefix = prefix;
    if (has_own_gpu()) {
      job.rendezvous.local_rank = 0;
    }
    job.rendezvous.timeout = collective_timeout(run.spec);
    job.rendezvous.exchange = run.placement.exchange.value_or(Exchange::sockets);
    const RankReport report = leads() ? run_and_record(run, job) : run_rank(job, &kept_);
    if (!leads()) {
      summary_.count(status_named(report.status));
    }
    if (report.lost_contact) {
      throw Error(Error::Kind::communication,
                  run.spec.id + ": " + report.message + "; this world is broken, start it again to go on");
    }
  }

  RankReport run_and_record(const PlacedRun& run, const RankJob& job) {
    books_->started(run);
    RunEnd end;
    end.started_at = now_utc();
    const auto start = std::chrono::steady_clock::now();
    RankReport report;
    {
      const std::jthread ticker([&](const std::stop_token& stop) {  // while this thread trains
        while (!stop.stop_requested()) {
          books_->update();
          books_->keeps(run);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
      });
      report = run_rank(job, &kept_);
    }
    end.wall_time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!report.met && report.lost_contact) {
      books_->not_started(run);
      return report;
    }
    end.outcome = {status_named(report.status), report.message, std::nullopt, "", {}};
    refuse_full_disk(run.spec, end.outcome);
    end.result = report.result;
    end.notes = report.notes;
    books_->ended(run, end, summary_, report.lost_contact);
    return report;
  }

  const Experiment& experiment_;
  const LaunchOptions options_;
  const EnvironmentWorld& world_;
  std::optional<Books> books_;  // rank 0
  LaunchSummary summary_;
  KeptWorld kept_;
};

}  // namespace

LaunchSummary launch_in_world(const Experiment& experiment, const LaunchOptions& options,
                              const EnvironmentWorld& world) {
  return JoinedWorld(experiment, options, world).run();
}

}  // namespace bnlab
