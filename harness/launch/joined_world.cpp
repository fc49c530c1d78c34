// Runs a matrix as one rank of a world that torchrun, mpirun or srun made. Every process goes through the
// same runs in the same order; rank 0 decides which, and shares the decision through the store, so that the
// other ranks need not see the results folder.
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "harness/communicator/host/environment_world.hpp"
#include "harness/communicator/roll_call.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/run_recorder.hpp"
#include "harness/launch/runs_to_start.hpp"
#include "harness/launch/selection.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/environment.hpp"
#include "harness/support/activity.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/libraries.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// Of a roll call: until all are at its store, have answered, and are let go.
constexpr std::chrono::seconds kMeetsIn{5}, kAnswersIn{1}, kEndAfter{3};

// The one placement that the world can give: all its ranks, one run at a time.
WorldFacts facts_of(const EnvironmentWorld& world, const DealtGpus& gpus) {
  WorldFacts facts;
  facts.ranks = world.rendezvous.size;
  facts.one_host = world.one_host;
  facts.nodes = world.one_host ? 1 : std::max(1, facts.ranks / world.local_size);
  facts.threads = threads_of_rank(world, process_environment(), usable_cores(), usable_cores(getppid()));
  facts.cores = usable_cores();
  facts.gpus = [taken = gpus.gpus_taken] { return taken; };
  return facts;
}

LaunchRequest one_at_a_time(LaunchRequest request) {
  request.jobs = 1;
  return request;
}

// The runs that fit the world, in order; the others are named in `remarks`. Throws Error (usage) if none
// does.
std::vector<PlacedRun> runs_that_fit(const Experiment& experiment, const LaunchRequest& request,
                                     const WorldFacts& facts, std::vector<std::string>& remarks) {
  const std::string size = std::to_string(facts.ranks);
  std::vector<RunSpec> fitting;
  for (const RunSpec& run : select_runs(experiment.runs, request.only, request.slice)) {
    if (run.ranks.value_or(facts.ranks) != facts.ranks) {
      remarks.push_back(run.id + " is left out: its spec asks for " + std::to_string(*run.ranks) +
                        " ranks, and this world has " + size);
    } else if (run.towers() % facts.ranks != 0) {
      remarks.push_back(run.id + " is left out: the " + size + " ranks of this world do not divide its " +
                        std::to_string(run.towers()) + " towers");
    } else {
      fitting.push_back(run);
    }
  }
  if (fitting.empty() && !remarks.empty())
    throw Error(Error::Kind::usage, "no run fits this world: " + remarks.front());
  return place_runs(experiment, std::move(fitting), request, facts, remarks);
}

// What the ranks call a run among themselves. On how many machines they are is for rank 0 to tell: a machine
// with fewer ranks than the others would count more.
std::string name_of_run(const PlacedRun& run) {
  Placement placement = run.placement;
  placement.nodes = 1;
  return run.spec.id + "/" + placement.name();
}

class JoinedWorld {
 public:
  JoinedWorld(const Experiment& experiment, const LaunchRequest& request, const EnvironmentWorld& world)
      : experiment_(experiment),
        request_(one_at_a_time(request)),
        world_(world),
        gpus_(agree_on_gpus(world, request.device)) {}
  ~JoinedWorld() { Activity::keep_on(nullptr); }
  JoinedWorld(const JoinedWorld&) = delete;
  JoinedWorld& operator=(const JoinedWorld&) = delete;

  LaunchSummary run() {
    std::vector<std::string> remarks;
    std::vector<PlacedRun> fitting = runs_that_fit(experiment_, request_, facts_of(world_, gpus_), remarks);
    const Json plan = agree_on_plan(fitting, remarks);
    const std::vector<PlacedRun> chosen = chosen_runs(fitting, plan);
    if (!chosen.empty())  // else rank 0, and its store, may be gone
      prepare_roll_call(plan.at("session").get<std::string>());
    summary_.leads = leads();
    summary_.skipped = static_cast<int>(fitting.size() - chosen.size());
    summary_.failed_before = plan.at("failed_before").get<int>();
    if (leads()) recorder_.emplace(experiment_, request_, world_.launcher, chosen, summary_, remarks);
    for (const PlacedRun& run : chosen)
      run_one(run, plan.at("session").get<std::string>() + "/" + name_of_run(run));
    shutdown(kept_);
    return leads() ? recorder_->summary() : summary_;
  }

 private:
  bool leads() const { return world_.rendezvous.rank == 0; }

  // {"error", "kind", "code", "session", "runs", "failed_before"}: what rank 0 is and decided. If it could
  // not, every rank throws its error.
  Json agree_on_plan(std::vector<PlacedRun>& fitting, std::vector<std::string>& remarks) {
    Json plan{{"error", nullptr},
              {"code", code_version()},
              {"session", std::to_string(getpid()) + "-" + now_utc()},
              {"runs", Json::array()}};
    if (leads()) {
      try {
        plan["runs"] = mapped(by_attempts(runs_to_start(experiment_, fitting, request_, summary_, remarks)),
                              name_of_run);
      } catch (const std::exception& error) {
        plan.update(refusal(error));
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

  // On rank 0. The runs that were cut short before come last, lest they keep the others from their turn.
  static std::vector<PlacedRun> by_attempts(std::vector<PlacedRun> runs) {
    std::ranges::stable_sort(runs, {}, [](const PlacedRun& run) { return claims_of(run.folder).size(); });
    return runs;
  }

  // The attempt that the world makes at this run now, if it makes one: rank 0 claims the run, and every rank
  // learns in which folder the attempt works.
  std::optional<Attempt> claimed(const PlacedRun& run, const std::string& prefix) {
    std::optional<Attempt> attempt;
    Json turn{{"error", nullptr}, {"folder", nullptr}};
    if (leads()) {
      try {
        attempt = recorder_->claim(run).attempt;
      } catch (const std::exception& error) {
        turn.update(refusal(error));
      }
    }
    if (attempt) turn["folder"] = fs::path(attempt->folder).filename().string();
    Rendezvous place = world_.rendezvous;
    place.prefix = prefix + "/turn";
    place.timeout = collective_timeout(run.spec);
    try {
      turn = Json::parse(share_text(place, turn.dump()));
    } catch (const Error&) {
      if (attempt) recorder_->not_started(*attempt);
      throw;
    }
    refuse_if(turn);
    if (!leads() && !turn.at("folder").is_null()) {
      const fs::path beside = fs::path(run.folder).parent_path();
      attempt = {run, (beside / turn.at("folder").get<std::string>()).string()};
    }
    return attempt;
  }

  static Json refusal(const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const Error::Kind kind = known != nullptr ? known->kind() : Error::Kind::environment;
    return {{"error", error.what()}, {"kind", static_cast<int>(kind)}};
  }

  // What rank 0 could not do, no rank can.
  static void refuse_if(const Json& shared) {
    if (!shared.at("error").is_null()) {
      throw Error(static_cast<Error::Kind>(shared.at("kind").get<int>()),
                  "rank 0: " + shared.at("error").get<std::string>());
    }
  }

  static std::vector<PlacedRun> chosen_runs(const std::vector<PlacedRun>& fitting, const Json& plan) {
    std::vector<PlacedRun> chosen;
    for (const std::string name : plan.at("runs")) {
      const auto found =
          std::ranges::find_if(fitting, [&](const PlacedRun& run) { return name_of_run(run) == name; });
      if (found == fitting.end()) {
        throw Error(Error::Kind::usage, "rank 0 asks for the run " + name +
                                            ", which is none of this rank's; start every rank with the same "
                                            "command and the same spec");
      }
      chosen.push_back(*found);
    }
    return chosen;
  }

  void prepare_roll_call(const std::string& session) {
    Rendezvous place = world_.rendezvous;
    place.prefix = session + "/roll_call";
    place.timeout = kMeetsIn;
    roll_call_.emplace(place, [this] { return packed(page_); });
  }

  // On rank 0: what every rank is doing, in words.
  std::string doings() {
    const std::vector<std::unique_ptr<ActivityPage>> pages = mapped(roll_call_->call(kAnswersIn), unpacked);
    return activities_text(mapped(pages, [](const auto& page) -> const ActivityPage* { return page.get(); }));
  }

  void run_one(const PlacedRun& run, const std::string& prefix) {
    const std::optional<Attempt> attempt = claimed(run, prefix);
    if (!attempt) return;
    RankJob job{.spec = run.spec,
                .rendezvous = world_.rendezvous,
                .device = run.placement.device,
                .inputs = run.inputs,
                .data_dir = request_.data_dir,
                .run_dir = attempt->folder,
                .threads = run.threads};
    job.rendezvous.prefix = prefix;
    if (run.on_gpus()) job.rendezvous.local_rank = gpus_.of_rank.at(static_cast<size_t>(job.rendezvous.rank));
    job.rendezvous.timeout = collective_timeout(run.spec);
    job.rendezvous.exchange = run.placement.exchange.value_or(Exchange::sockets);
    Activity::keep_on(&page_);
    const RankReport report = leads() ? run_and_record(*attempt, job) : run_rank(job, &kept_);
    if (!leads()) summary_.count(report.status);
    if (report.lost_contact && report.world_formed) roll_call_->wait(kEndAfter);
    if (report.lost_contact) {
      throw Error(Error::Kind::communication,
                  run.spec.id + ": " + report.message + "; this world is broken, start it again to go on");
    }
  }

  // Another world has taken the run over. What this one would go on to compute could not be published; the
  // other ranks lose contact with it.
  [[noreturn]] static void end_of_world(const Attempt& attempt) {
    std::cerr << "bnlab: " << attempt.run.spec.id
              << " was taken over by another launcher, because this one was not "
              << "heard of for long; this world ends, start it again to go on" << std::endl;
    std::_Exit(EX_TEMPFAIL);
  }

  RankReport run_and_record(const Attempt& attempt, const RankJob& job) {
    recorder_->started(attempt);
    RunEnd end;
    end.started_at = now_utc();
    const auto start = std::chrono::steady_clock::now();
    RankReport report;
    {
      const std::jthread ticker([&](const std::stop_token& stop) {  // while this thread trains
        while (!stop.stop_requested()) {
          recorder_->update();
          if (!recorder_->renew_claim(attempt)) end_of_world(attempt);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
      });
      report = run_rank(job, &kept_);
    }
    end.wall_time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!report.world_formed && report.lost_contact) {
      recorder_->not_started(attempt);
      return report;
    }
    if (report.lost_contact) {
      std::signal(SIGTERM, SIG_IGN);  // by which launchers end all ranks where one has died: first the record
      report.message += "; when it ended, " + doings();
    }
    end.outcome = {.status = report.status, .message = report.message};
    refuse_full_disk(attempt.run.spec, end.outcome);
    end.result = report.result;
    end.notes = report.notes;
    end.lost_work = report.lost_work;
    recorder_->ended(attempt, end, report.lost_contact && !has_result(report.status));
    std::signal(SIGTERM, SIG_DFL);
    return report;
  }

  const Experiment& experiment_;
  const LaunchRequest request_;
  const EnvironmentWorld& world_;
  const DealtGpus gpus_;
  std::optional<RunRecorder> recorder_;  // on rank 0, which counts by it
  LaunchSummary summary_;                // counts for the other ranks; on rank 0 what was there before
  KeptWorld kept_;
  ActivityPage page_{};
  std::optional<RollCall> roll_call_;
};

}  // namespace

LaunchSummary launch_in_world(const Experiment& experiment, const LaunchRequest& request,
                              const EnvironmentWorld& world) {
  return JoinedWorld(experiment, request, world).run();
}

}  // namespace bnlab
