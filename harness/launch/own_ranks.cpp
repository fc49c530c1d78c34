// Runs a matrix with ranks that are children of this process. Left out are the runs that need no start
// (runs_to_start.hpp) and those that another process has claimed. Ranks whose run ended well take the next.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/launch/interrupt_watch.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/process.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/rank_processes.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/launch/run_recorder.hpp"
#include "harness/launch/runs_to_start.hpp"
#include "harness/launch/selection.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds kLookEvery{20};
constexpr seconds kGraceAfterFailure{2};  // for the other ranks to notice by themselves, and to report
constexpr seconds kGraceAfterStop{2};     // between SIGTERM and SIGKILL

// Where a run asks for its ranks. `gpus` names the GPU of each rank and is empty on the CPU.
RanksPlace place_of(const PlacedRun& run, std::vector<int> gpus) {
  RanksPlace place{.ranks = run.placement.ranks,
                   .device = run.placement.device,
                   .exchange = run.placement.exchange,
                   .timeout = collective_timeout(run.spec),
                   .settings = rank_settings(run.placement.shared_gpus),
                   .gpus = std::move(gpus)};
  place.settings["OMP_NUM_THREADS"] = std::to_string(run.threads);
  return place;
}

// Where a rank waits too long for another one, NCCL's watchdog aborts its process: all that it leaves is a
// line in its log. That rank has lost contact and is not the one at fault.
std::optional<RankReport> report_of_watchdog(const std::string& log) {
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find("Watchdog caught collective operation timeout"); at != std::string::npos)
      return RankReport{.status = Status::crashed, .message = line.substr(at), .lost_contact = true};
  return std::nullopt;
}

bool failed(const RankEnd& rank) {
  return !rank.report || rank.end.signal != 0 || rank.end.code != 0 || !has_result(rank.report->status);
}

// One run whose ranks are children of this process: started, watched, stopped, judged.
class RunningRun {
 public:
  // Writes the job into the attempt's folder. Ranks that wait for a run in its place take it; where there are
  // none, others are started.
  RunningRun(Attempt attempt, RanksPlace place, std::unique_ptr<RankProcesses> waiting,
             const LaunchRequest& request)
      : attempt_(std::move(attempt)),
        processes_(std::move(waiting)),
        states_(static_cast<size_t>(place.ranks)),
        started_at_(now_utc()),
        start_(Clock::now()),
        out_of_memory_kills_(out_of_memory_kills()) {
    RankJob job;
    job.spec = run().spec;
    job.device = run().placement.device;
    job.rendezvous.exchange = run().placement.exchange.value_or(Exchange::sockets);
    job.inputs = run().inputs;
    job.data_dir = request.data_dir;
    job.run_dir = attempt_.folder;
    job.threads = run().threads;
    write_job(job);
    if (processes_) {
      processes_->start(attempt_.folder);
    } else {
      processes_ = std::make_unique<RankProcesses>(std::move(place), request.program, attempt_.folder,
                                                   /*stay=*/!request.fresh_ranks);
    }
  }

  const Attempt& attempt() const { return attempt_; }
  const RankProcesses& processes() const { return *processes_; }

  // Looks at the ranks without waiting, and ends the run where a rank has failed or fell silent or the time
  // is up. True once all ranks have ended.
  bool poll() {
    if (collect_ended()) react();
    if (std::ranges::all_of(states_, &State::ended)) return true;
    const double limit = run().spec.timeout_s;
    if (stop_ == Stop::none && limit > 0 && elapsed_s() > limit) stop(Stop::timeout);
    const auto now = Clock::now();
    if (kill_at_ && now >= *kill_at_)
      signal_rest(SIGKILL);
    else if (!kill_at_ && stop_at_ && now >= *stop_at_)
      stop(Stop::none);
    return false;
  }

  // Sends SIGTERM now; poll() sends SIGKILL a little later.
  void stop(Stop why) {
    if (kill_at_) return;
    stop_ = why;
    signal_rest(SIGTERM);
    kill_at_ = Clock::now() + kGraceAfterStop;
  }

  // How the run went, once poll() was true.
  RunEnd end() const {
    RunEnd end{.started_at = started_at_,
               .wall_time_s = elapsed_s(),
               .outcome = outcome(),
               .variables = processes_->place().settings,
               .runs_before = processes_->runs_before()};
    if (const auto& first = states_.front().end.report) {
      if (has_result(end.outcome.status)) end.result = first->result;
      end.lost_work = first->lost_work;
    }
    for (const State& rank : states_)
      if (rank.end.report)
        end.notes.insert(end.notes.end(), rank.end.report->notes.begin(), rank.end.report->notes.end());
    return end;
  }

  // The ranks, if all of them wait for another run once this one has ended.
  std::unique_ptr<RankProcesses> waiting_ranks() {
    return processes_->wait_for_a_run() ? std::move(processes_) : nullptr;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    RankEnd end;
    bool ended = false;
  };

  const PlacedRun& run() const { return attempt_.run; }
  std::string log_of(int rank) const { return log_file(attempt_.folder, rank); }

  // True if some rank has ended since the last look.
  bool collect_ended() {
    bool any = false;
    ++looks_;
    for (size_t i = 0; i < states_.size(); ++i) {
      State& rank = states_[i];
      if (rank.ended) continue;
      if (const auto end = processes_->poll(i)) {
        const int number = static_cast<int>(i);
        rank.ended = any = true;
        rank.end.end = *end;
        rank.end.order = looks_;
        rank.end.report = read_report(attempt_.folder, number);
        if (end->signal == SIGABRT && !rank.end.report) {
          rank.end.report = report_of_watchdog(log_of(number));
          rank.end.end = rank.end.report ? ProcessEnd{} : *end;
        }
      }
    }
    return any;
  }

  // Decides when the other ranks must have ended: soon where a rank has failed, within the time of a
  // collective where one has finished.
  void react() {
    const bool any_failed =
        std::ranges::any_of(states_, [](const State& rank) { return rank.ended && failed(rank.end); });
    const auto patience =
        any_failed ? Clock::duration(kGraceAfterFailure) : Clock::duration(collective_timeout(run().spec));
    const auto deadline = Clock::now() + patience;
    if (!stop_at_ || deadline < *stop_at_) stop_at_ = deadline;
  }

  void signal_rest(int signal) {
    bool any = false;
    for (size_t i = 0; i < states_.size(); ++i)
      if (!processes_->poll(i)) states_[i].end.stopped = any = true;
    if (any) processes_->send(signal);
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Outcome outcome() const {
    const bool out_of_memory = out_of_memory_kills() > out_of_memory_kills_;
    Outcome outcome = judge(mapped(states_, &State::end), stop_, run().spec.timeout_s, out_of_memory);
    if (const std::string doing = processes_->doing(); outcome.status == Status::timeout && !doing.empty())
      outcome.message += "; when it ended, " + doing;
    if (outcome.rank && !has_result(outcome.status)) outcome.log_tail = log_tail(log_of(*outcome.rank));
    return outcome;
  }

  Attempt attempt_;
  std::unique_ptr<RankProcesses> processes_;
  std::vector<State> states_;
  std::string started_at_;
  Clock::time_point start_;
  std::optional<Clock::time_point> stop_at_;  // when the remaining ranks are told to end
  std::optional<Clock::time_point> kill_at_;  // when those that did not are killed
  Stop stop_ = Stop::none;
  int looks_ = 0;
  long out_of_memory_kills_ = 0;
};

// The runs of a matrix, some of them side by side.
class OwnRanks {
 public:
  OwnRanks(const Experiment& experiment, const LaunchRequest& request)
      : experiment_(experiment), request_(request) {}

  LaunchSummary run() {
    std::vector<std::string> remarks;
    std::vector<RunSpec> selected = select_runs(experiment_.runs, request_.only, request_.slice);
    const WorldFacts facts = this_machine();
    if (request_.jobs == kAutoJobs) {
      request_.jobs = jobs_side_by_side(experiment_, selected, request_, facts);
      remarks.push_back("runs side by side: " + std::to_string(request_.jobs));
    }
    std::vector<PlacedRun> asked = place_runs(experiment_, std::move(selected), request_, facts, remarks);
    LaunchSummary before;
    waiting_ = runs_to_start(experiment_, asked, request_, before, remarks);
    gpus_ = GpuShares(std::ranges::any_of(waiting_, &PlacedRun::on_gpus) ? facts.gpus() : 0);
    RunRecorder recorder(experiment_, request_, "bnlab", waiting_, before, remarks);
    try {
      watch_all(recorder);
    } catch (const std::exception&) {
      running_.clear();  // before the recorder withdraws their claims
      throw;
    }
    LaunchSummary summary = recorder.summary();
    summary.interrupted = interrupted_;
    return summary;
  }

 private:
  void watch_all(RunRecorder& recorder) {
    const InterruptWatch interrupt;
    std::ranges::reverse(waiting_);  // the next one is at the back
    while (!waiting_.empty() || !running_.empty() || look_again()) {
      if (interrupt.interrupted() && !interrupted_) {
        interrupted_ = true;
        waiting_.clear();
        held_.clear();
        std::ranges::for_each(running_, [](RunningRun& run) { run.stop(Stop::interrupt); });
      }
      while (!waiting_.empty() && running_.size() < static_cast<size_t>(request_.jobs)) start_next(recorder);
      for (RunningRun& run : running_)
        if (!recorder.renew_claim(run.attempt())) run.stop(Stop::interrupt);
      const size_t ended_now = running_.remove_if([&](RunningRun& run) { return ended(run, recorder); });
      recorder.update();
      if (ended_now == 0) wait_a_little();
    }
  }

  // Until a rank has something to tell, or it is time to look at all else.
  void wait_a_little() {
    std::vector<pollfd> channels;
    for (const RunningRun& run : running_)
      for (const int fd : run.processes().channels_under_way()) channels.push_back({fd, POLLIN, 0});
    poll(channels.data(), channels.size(), static_cast<int>(kLookEvery.count()));
  }

  // Ranks that wait for a run in this place, if there are any. Those in other places end where they would be
  // more than there are runs side by side.
  std::unique_ptr<RankProcesses> ranks_for(const RanksPlace& place) {
    std::erase_if(waiting_ranks_, [](auto& ranks) { return !ranks->wait_for_a_run(); });
    const auto found =
        std::ranges::find_if(waiting_ranks_, [&](const auto& ranks) { return ranks->place() == place; });
    std::unique_ptr<RankProcesses> ranks;
    if (found != waiting_ranks_.end()) {
      ranks = std::move(*found);
      waiting_ranks_.erase(found);
    }
    while (running_.size() + waiting_ranks_.size() >= static_cast<size_t>(request_.jobs))
      waiting_ranks_.pop_front();
    return ranks;
  }

  // Once all else is done, what others had at first may be free. Whether there is anything to look at.
  bool look_again() {
    looked_again_ = true;
    std::swap(waiting_, held_);
    return !waiting_.empty();
  }

  void start_next(RunRecorder& recorder) {
    const PlacedRun next = waiting_.back();
    waiting_.pop_back();
    const ClaimResult claimed = recorder.claim(next, looked_again_);
    if (claimed.held && !looked_again_) held_.push_back(next);
    if (claimed.attempt) start(*claimed.attempt, recorder);
  }

  void start(const Attempt& attempt, RunRecorder& recorder) {
    const std::vector<int> gpus =
        attempt.run.on_gpus() ? gpus_.take(attempt.run.placement.ranks) : std::vector<int>();
    try {
      recorder.started(attempt);
      const RanksPlace place = place_of(attempt.run, gpus);
      running_.emplace_back(attempt, place, ranks_for(place), request_);
    } catch (const std::exception&) {
      gpus_.give_back(gpus);
      if (!recorder.taken_over(attempt)) throw;
    }
  }

  // Whether the run has ended; if so, its record is written.
  bool ended(RunningRun& run, RunRecorder& recorder) {
    try {
      if (!run.poll()) return false;
      const RunEnd end = run.end();
      refuse_full_disk(run.attempt().run.spec, end.outcome);
      recorder.ended(run.attempt(), end);
    } catch (const std::exception&) {
      if (!recorder.taken_over(run.attempt())) throw;
    }
    gpus_.give_back(run.processes().place().gpus);
    if (auto ranks = run.waiting_ranks()) waiting_ranks_.push_back(std::move(ranks));
    return true;
  }

  const Experiment& experiment_;
  LaunchRequest request_;  // with a number of jobs once the runs are placed
  std::vector<PlacedRun> waiting_;
  std::vector<PlacedRun> held_;  // by other processes, when it was their turn
  bool looked_again_ = false;    // whether they were asked for a second time
  std::list<RunningRun> running_;
  std::list<std::unique_ptr<RankProcesses>> waiting_ranks_;  // for a run, the longest first
  GpuShares gpus_{0};
  bool interrupted_ = false;
};

}  // namespace

LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchRequest& request) {
  return OwnRanks(experiment, request).run();
}

}  // namespace bnlab
