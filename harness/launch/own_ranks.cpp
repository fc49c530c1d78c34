// Runs a matrix with ranks that are children of this process. Runs that need no start are left out here (survey), and
// those that another process has claimed.
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <list>
#include <thread>

#include "harness/launch/books.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/running_run.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/survey.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

volatile sig_atomic_t interrupt_raised = 0;

// While one lives, Ctrl-C and its like (SIGINT, SIGTERM, SIGHUP) only raise a flag, so that children are stopped and
// records stay whole.
class InterruptWatch {
 public:
  InterruptWatch() {
    interrupt_raised = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupt_raised = 1; };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) {  // nohup: an ignored hang-up stays ignored
        sigaction(kSignals[i], &action, nullptr);
      }
    }
  }
  ~InterruptWatch() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const { return interrupt_raised != 0; }

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

class OwnRanks {
 public:
  OwnRanks(const Experiment& experiment, const LaunchOptions& options)
      : experiment_(experiment), options_(options) {}

  LaunchSummary run() {
    std::vector<std::string> remarks;
    std::vector<RunSpec> selected = select_runs(experiment_.runs, options_.only, options_.slice);
    if (options_.jobs == kAutoJobs) {
      options_.jobs = jobs_side_by_side(experiment_, selected, options_, visible_gpus, usable_cores());
      remarks.push_back("runs side by side: " + std::to_string(options_.jobs));
    }
    std::vector<PlacedRun> asked =
        place_runs(experiment_, std::move(selected), options_, visible_gpus, usable_cores(), remarks);
    waiting_ = runs_to_start(experiment_, asked, options_, summary_, remarks);
    const auto on_gpu = [](const PlacedRun& run) { return run.placement.device == "cuda"; };
    gpus_ = GpuShares(std::ranges::any_of(waiting_, on_gpu) ? visible_gpus() : 0);
    Books books(experiment_, options_, "bnlab", waiting_, remarks);
    try {
      watch_all(books);
    } catch (const std::exception&) {
      running_.clear();  // before the books give their runs back
      throw;
    }
    return summary_;
  }

 private:
  void watch_all(Books& books) {
    const InterruptWatch interrupt;
    std::ranges::reverse(waiting_);  // the next one is at the back
    while (!waiting_.empty() || !running_.empty() || look_again()) {
      if (interrupt.interrupted() && !summary_.interrupted) {
        summary_.interrupted = true;
        waiting_.clear();
        held_.clear();
        std::ranges::for_each(running_, [](RunningRun& run) { run.stop(Stop::interrupt); });
      }
      while (!waiting_.empty() && running_.size() < static_cast<size_t>(options_.jobs)) {
        start_next(books);
      }
      for (RunningRun& run : running_) {
        if (!books.keeps(run.run())) {
          run.stop(Stop::interrupt);
        }
      }
      running_.remove_if([&](RunningRun& run) { return ended(run, books); });
      books.update();
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  // Once all else is done, what others had at first may be free. Whether there is anything to look at.
  bool look_again() {
    looked_again_ = true;
    std::swap(waiting_, held_);
    return !waiting_.empty();
  }

  void start_next(Books& books) {
    PlacedRun next = waiting_.back();
    waiting_.pop_back();
    const Books::Turn turn = books.claim(next, summary_, looked_again_);
    if (turn == Books::Turn::held && !looked_again_) {
      held_.push_back(next);
    }
    if (turn != Books::Turn::ours) {
      return;
    }
    if (next.placement.device == "cuda") {
      next.gpus = gpus_.take(next.placement.ranks);
    }
    try {
      books.started(next);
      running_.emplace_back(next, options_.program, options_.data_dir);
    } catch (const std::exception&) {
      gpus_.give_back(next.gpus);
      if (!books.taken_over(next, summary_)) {
        throw;
      }
    }
  }

  // Whether the run has ended; if so, its record is written.
  bool ended(RunningRun& run, Books& books) {
    try {
      if (!run.poll()) {
        return false;
      }
      const RunEnd end = run.end();
      refuse_full_disk(run.run().spec, end.outcome);
      books.ended(run.run(), end, summary_);
    } catch (const std::exception&) {
      if (!books.taken_over(run.run(), summary_)) {
        throw;
      }
    }
    gpus_.give_back(run.run().gpus);
    return true;
  }

  const Experiment& experiment_;
  LaunchOptions options_;
  std::vector<PlacedRun> waiting_;
  std::vector<PlacedRun> held_;  // by other processes, when it was their turn
  bool looked_again_ = false;    // whether that was asked a second time
  std::list<RunningRun> running_;
  GpuShares gpus_{0};
  LaunchSummary summary_;
};

}  // namespace

LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchOptions& options) {
  return OwnRanks(experiment, options).run();
}

}  // namespace bnlab
