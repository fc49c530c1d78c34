// Runs a matrix with ranks that are children of this process.
#include <algorithm>
#include <chrono>
#include <list>
#include <thread>

#include "harness/launch/interrupt.hpp"
#include "harness/launch/launch_parts.hpp"
#include "harness/launch/running_run.hpp"
#include "harness/launch/selection.hpp"
#include "harness/records/environment.hpp"
#include "harness/records/results_lock.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

class Matrix {
 public:
  Matrix(const Experiment& experiment, const LaunchOptions& options)
      : experiment_(experiment), options_(options) {}

  LaunchSummary run() {
    std::vector<std::string> remarks;
    const ResultsLock lock(options_.results_dir);
    waiting_ = place_runs(experiment_, select_runs(experiment_, options_.only), options_, visible_gpus,
                          usable_cores(), remarks);
    summary_.skipped = static_cast<int>(
        std::erase_if(waiting_, [&](const PlacedRun& run) { return is_done(run.folder, options_.retry); }));
    Progress progress(static_cast<int>(waiting_.size()), total_work(waiting_), options_.jobs);
    for (const std::string& remark : remarks) {
      progress.say("note: " + remark);
    }
    if (!waiting_.empty()) {
      environment_ = environment_record(library_versions());
      watch_all(progress);
    }
    return summary_;
  }

 private:
  void watch_all(Progress& progress) {
    const InterruptWatch interrupt;
    std::reverse(waiting_.begin(), waiting_.end());  // the next one is at the back
    while (!waiting_.empty() || !running_.empty()) {
      if (interrupt.interrupted() && !summary_.interrupted) {
        summary_.interrupted = true;
        waiting_.clear();
        std::for_each(running_.begin(), running_.end(), [](RunningRun& run) { run.stop(Stop::interrupt); });
      }
      while (!waiting_.empty() && running_.size() < static_cast<size_t>(options_.jobs)) {
        start_next(progress);
      }
      running_.remove_if([&](RunningRun& run) { return ended(run, progress); });
      progress.update();
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  void start_next(Progress& progress) {
    const PlacedRun next = waiting_.back();
    waiting_.pop_back();
    running_.emplace_back(next, options_.program, options_.data_dir);
    progress.started(next.spec, next.folder + "/" + kMetricsFile);
  }

  // Whether the run has ended; if so, its record is written.
  bool ended(RunningRun& run, Progress& progress) {
    if (!run.poll()) {
      return false;
    }
    RunAccount account = begin_account(experiment_, options_, run.run(), "bnlab", environment_);
    account.started_at = run.started_at();
    for (const auto& [name, value] : rank_settings(run.run().threads)) {
      account.environment["variables"][name] = value;
    }
    account.wall_time_s = run.elapsed_s();
    account.outcome = run.outcome();
    account.result = run.result();
    account.notes = run.notes();
    write_record(account, run.run().folder);
    count(summary_, account.outcome.status);
    progress.finished(run.run().spec, account.outcome, account.wall_time_s, account.result);
    return true;
  }

  const Experiment& experiment_;
  const LaunchOptions& options_;
  Json environment_;
  std::vector<PlacedRun> waiting_;
  std::list<RunningRun> running_;
  LaunchSummary summary_;
};

}  // namespace

LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchOptions& options) {
  return Matrix(experiment, options).run();
}

}  // namespace bnlab
