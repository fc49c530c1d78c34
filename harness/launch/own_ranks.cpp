// Runs a matrix with ranks that are children of this process. Left out are the runs that need no start
// (survey.hpp) and those that another process has claimed.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/launch/activity_board.hpp"
#include "harness/launch/interrupt_watch.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/process.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/launch/run_recorder.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/survey.hpp"
#include "harness/mapped.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds kLookEvery{20};
constexpr seconds kGraceAfterFailure{2};  // for the other ranks to notice by themselves, and to report
constexpr seconds kGraceAfterStop{2};     // between SIGTERM and SIGKILL

std::map<std::string, std::string> settings_of(const PlacedRun& run) {
  std::map<std::string, std::string> settings = rank_settings(run.placement.shared_gpus);
  settings["OMP_NUM_THREADS"] = std::to_string(run.threads);
  return settings;
}

// Where a rank waits too long for another one, NCCL's watchdog aborts its process: all that it leaves is a
// line in its log. That rank has lost contact and is not the one at fault.
std::optional<RankReport> report_of_watchdog(const std::string& log) {
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (const size_t at = line.find("Watchdog caught collective operation timeout");
        at != std::string::npos) {
      return RankReport{Status::crashed, line.substr(at), nullptr, /*lost_contact=*/true, {}};
    }
  }
  return std::nullopt;
}

bool failed(const RankEnd& rank) {
  return !rank.report || rank.end.signal != 0 || rank.end.code != 0 || !has_result(rank.report->status);
}

// One run whose ranks are children of this process: started, watched, stopped, judged.
class RunningRun {
 public:
  // Writes the job into the attempt's folder and starts the ranks as `PROGRAM rank --job FILE`. `gpus` names
  // the GPU of each rank and is empty on the CPU.
  RunningRun(Attempt attempt, std::vector<int> gpus, const LaunchRequest& request)
      : attempt_(std::move(attempt)),
        gpus_(std::move(gpus)),
        board_(run().placement.ranks),
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
    start_ranks(request.program);
  }

  const Attempt& attempt() const { return attempt_; }
  const std::vector<int>& gpus() const { return gpus_; }

  // Looks at the ranks without waiting, and ends the run where a rank has failed or fell silent or the time
  // is up. True once all ranks have ended.
  bool poll() {
    if (collect_ended()) {
      react();
    }
    if (std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.ended; })) {
      return true;
    }
    const double limit = run().spec.timeout_s;
    if (stop_ == Stop::none && limit > 0 && elapsed_s() > limit) {
      stop(Stop::timeout);
    }
    const auto now = Clock::now();
    if (kill_at_ && now >= *kill_at_) {
      signal_rest(SIGKILL);
    } else if (!kill_at_ && stop_at_ && now >= *stop_at_) {
      stop(Stop::none);
    }
    return false;
  }

  // Sends SIGTERM now; poll() sends SIGKILL a little later.
  void stop(Stop why) {
    if (kill_at_) {
      return;
    }
    stop_ = why;
    signal_rest(SIGTERM);
    kill_at_ = Clock::now() + kGraceAfterStop;
  }

  // How the run went, once poll() was true.
  RunEnd end() const {
    RunEnd end{started_at_, elapsed_s(), outcome(), nullptr, {}, settings_of(run())};
    if (const auto& first = ranks_.front().state.report; has_result(end.outcome.status) && first) {
      end.result = first->result;
    }
    for (const Rank& rank : ranks_) {
      if (rank.state.report) {
        end.notes.insert(end.notes.end(), rank.state.report->notes.begin(), rank.state.report->notes.end());
      }
    }
    return end;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    Process process;  // its destructor kills a rank that still runs
    RankEnd state;
    bool ended = false;
  };

  const PlacedRun& run() const { return attempt_.run; }
  std::string log_of(int rank) const { return log_file(attempt_.folder, rank); }

  std::map<std::string, std::string> rank_environment(int rank, int port) const {
    std::map<std::string, std::string> environment = settings_of(run());
    const int local_rank = gpus_.empty() ? rank : gpus_.at(static_cast<size_t>(rank));  // selects the GPU
    environment.insert({{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(run().placement.ranks)},
                        {"LOCAL_RANK", std::to_string(local_rank)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(port)},
                        {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
    return environment;
  }

  void start_ranks(const std::string& program) {
    const int ranks = run().placement.ranks;
    std::optional<LoopbackSocket> meeting_point;  // closed here once rank 0 has inherited it
    if (ranks > 1) {
      meeting_point.emplace();
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ChildCommand command;
      command.argv = {program, "rank", "--job", job_file(attempt_.folder)};
      command.environment = rank_environment(rank, meeting_point ? meeting_point->port() : 0);
      command.log_file = log_of(rank);
      command.group = ranks_.empty() ? 0 : ranks_.front().process.id();
      if (rank == 0 && meeting_point) {
        command.inherited_fds = {meeting_point->fd()};
        command.environment["BNLAB_LISTEN_FD"] = std::to_string(meeting_point->fd());
      }
      if (board_.fd() >= 0) {
        command.inherited_fds.push_back(board_.fd());
        command.environment[ActivityBoard::kVariable] = std::to_string(board_.fd());
      }
      ranks_.push_back({Process(command), {}, false});
    }
  }

  // True if some rank has ended since the last look.
  bool collect_ended() {
    bool any = false;
    ++looks_;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (rank.ended) {
        continue;
      }
      if (const auto end = rank.process.poll()) {
        const int number = static_cast<int>(i);
        rank.ended = any = true;
        rank.state.end = *end;
        rank.state.order = looks_;
        rank.state.report = read_report(attempt_.folder, number);
        if (end->signal == SIGABRT && !rank.state.report) {
          rank.state.report = report_of_watchdog(log_of(number));
          rank.state.end = rank.state.report ? ProcessEnd{} : *end;
        }
      }
    }
    return any;
  }

  // Decides when the other ranks must have ended: soon where a rank has failed, within the time of a
  // collective where one has finished.
  void react() {
    const bool any_failed =
        std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.ended && failed(rank.state); });
    const auto patience =
        any_failed ? Clock::duration(kGraceAfterFailure) : Clock::duration(collective_timeout(run().spec));
    const auto deadline = Clock::now() + patience;
    if (!stop_at_ || deadline < *stop_at_) {
      stop_at_ = deadline;
    }
  }

  void signal_rest(int signal) {
    bool any = false;
    for (Rank& rank : ranks_) {
      if (!rank.process.poll()) {
        rank.state.stopped = any = true;
      }
    }
    if (any) {  // a rank that is not reaped keeps the group's id from being used again
      kill(-ranks_.front().process.id(), signal);
    }
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Outcome outcome() const {
    const bool out_of_memory = out_of_memory_kills() > out_of_memory_kills_;
    Outcome outcome = judge(mapped(ranks_, &Rank::state), stop_, run().spec.timeout_s, out_of_memory);
    if (const std::string doing = board_.text(); outcome.status == Status::timeout && !doing.empty()) {
      outcome.message += "; when it ended, " + doing;
    }
    if (outcome.rank && !has_result(outcome.status)) {
      outcome.log_tail = log_tail(log_of(*outcome.rank));
    }
    return outcome;
  }

  Attempt attempt_;
  std::vector<int> gpus_;
  ActivityBoard board_;  // what the ranks were doing
  std::vector<Rank> ranks_;
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
      while (!waiting_.empty() && running_.size() < static_cast<size_t>(request_.jobs)) {
        start_next(recorder);
      }
      for (RunningRun& run : running_) {
        if (!recorder.keeps(run.attempt())) {
          run.stop(Stop::interrupt);
        }
      }
      running_.remove_if([&](RunningRun& run) { return ended(run, recorder); });
      recorder.update();
      std::this_thread::sleep_for(kLookEvery);
    }
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
    if (claimed.held && !looked_again_) {
      held_.push_back(next);
    }
    if (claimed.attempt) {
      start(*claimed.attempt, recorder);
    }
  }

  void start(const Attempt& attempt, RunRecorder& recorder) {
    const std::vector<int> gpus =
        attempt.run.on_gpus() ? gpus_.take(attempt.run.placement.ranks) : std::vector<int>();
    try {
      recorder.started(attempt);
      running_.emplace_back(attempt, gpus, request_);
    } catch (const std::exception&) {
      gpus_.give_back(gpus);
      if (!recorder.taken_over(attempt)) {
        throw;
      }
    }
  }

  // Whether the run has ended; if so, its record is written.
  bool ended(RunningRun& run, RunRecorder& recorder) {
    try {
      if (!run.poll()) {
        return false;
      }
      const RunEnd end = run.end();
      refuse_full_disk(run.attempt().run.spec, end.outcome);
      recorder.ended(run.attempt(), end);
    } catch (const std::exception&) {
      if (!recorder.taken_over(run.attempt())) {
        throw;
      }
    }
    gpus_.give_back(run.gpus());
    return true;
  }

  const Experiment& experiment_;
  LaunchRequest request_;  // with a number of jobs once the runs are placed
  std::vector<PlacedRun> waiting_;
  std::vector<PlacedRun> held_;  // by other processes, when it was their turn
  bool looked_again_ = false;    // whether they were asked for a second time
  std::list<RunningRun> running_;
  GpuShares gpus_{0};
  bool interrupted_ = false;
};

}  // namespace

LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchRequest& request) {
  return OwnRanks(experiment, request).run();
}

}  // namespace bnlab
