#include "harness/launch/running_run.hpp"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "harness/communicator/host/loopback_socket.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

using std::chrono::seconds;

constexpr seconds kGraceAfterFailure{2};  // for the other ranks to notice by themselves, and to report
constexpr seconds kGraceAfterStop{2};     // between SIGTERM and SIGKILL

std::map<std::string, std::string> settings_of(const PlacedRun& run) {
  std::map<std::string, std::string> settings = rank_settings(run.placement.shared_gpus);
  settings["OMP_NUM_THREADS"] = std::to_string(run.threads);
  return settings;
}

std::map<std::string, std::string> rank_environment(const PlacedRun& run, int rank, int port) {
  std::map<std::string, std::string> environment = settings_of(run);
  const int local_rank = run.gpus.empty() ? rank : run.gpus.at(static_cast<size_t>(rank));  // selects the GPU
  environment.insert({{"RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(run.placement.ranks)},
                      {"LOCAL_RANK", std::to_string(local_rank)},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(port)},
                      {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  return environment;
}

// Where a rank waits too long for another one, NCCL's watchdog aborts its process: all that it leaves is a line in its
// log. That rank has lost contact and is not the one at fault.
std::optional<RankReport> report_of_watchdog(const std::string& log) {
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (const size_t at = line.find("Watchdog caught collective operation timeout");
        at != std::string::npos) {
      return RankReport{"crashed", line.substr(at), nullptr, /*lost_contact=*/true, {}};
    }
  }
  return std::nullopt;
}

bool failed(const RankEnd& rank) {
  return !rank.report || rank.end.signal != 0 || rank.end.code != 0 ||
         (rank.report->status != "ok" && rank.report->status != "diverged");
}

}  // namespace

RunningRun::RunningRun(PlacedRun run, const std::string& program, const std::string& data_dir)
    : run_(std::move(run)),
      started_at_(now_utc()),
      start_(Clock::now()),
      out_of_memory_kills_(bnlab::out_of_memory_kills()) {
  RankJob job;
  job.spec = run_.spec;
  job.device = run_.placement.device;
  job.rendezvous.exchange = run_.placement.exchange.value_or(Exchange::sockets);
  job.inputs = run_.inputs;
  job.data_dir = data_dir;
  job.run_dir = run_.folder;
  job.threads = run_.threads;
  write_job(job);
  start_ranks(program);
}

RunningRun::~RunningRun() = default;

void RunningRun::start_ranks(const std::string& program) {
  const int ranks = run_.placement.ranks;
  std::optional<LoopbackSocket> meeting_point;  // closed here once rank 0 has inherited it
  if (ranks > 1) {
    meeting_point.emplace();
  }
  for (int rank = 0; rank < ranks; ++rank) {
    ChildCommand command;
    command.argv = {program, "rank", "--job", job_file(run_.folder)};
    command.environment = rank_environment(run_, rank, meeting_point ? meeting_point->port() : 0);
    command.log_file = log_file(run_.folder, rank);
    command.group = ranks_.empty() ? 0 : ranks_.front().process.id();
    if (rank == 0 && meeting_point) {
      command.inherited_fds = {meeting_point->fd()};
      command.environment["BNLAB_LISTEN_FD"] = std::to_string(meeting_point->fd());
    }
    ranks_.push_back({Process(command), {}, false});
  }
}

double RunningRun::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

bool RunningRun::poll() {
  if (collect_ended()) {
    react();
  }
  if (std::ranges::all_of(ranks_, [](const Rank& r) { return r.ended; })) {
    return true;
  }
  if (stop_ == Stop::none && run_.spec.timeout_s > 0 && elapsed_s() > run_.spec.timeout_s) {
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

bool RunningRun::collect_ended() {
  bool any = false;
  ++looks_;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended) {
      continue;
    }
    if (const auto end = rank.process.poll()) {
      rank.ended = any = true;
      rank.state.end = *end;
      rank.state.order = looks_;
      rank.state.report = read_report(run_.folder, static_cast<int>(i));
      if (end->signal == SIGABRT && !rank.state.report) {
        rank.state.report = report_of_watchdog(log_file(run_.folder, static_cast<int>(i)));
        rank.state.end = rank.state.report ? ProcessEnd{} : *end;
      }
    }
  }
  return any;
}

void RunningRun::react() {
  // A rank that failed ends the run soon. A rank that has finished leaves the others the time of a collective.
  const bool any_failed =
      std::ranges::any_of(ranks_, [](const Rank& r) { return r.ended && failed(r.state); });
  const auto patience =
      any_failed ? Clock::duration(kGraceAfterFailure) : Clock::duration(collective_timeout(run_.spec));
  const auto deadline = Clock::now() + patience;
  if (!stop_at_ || deadline < *stop_at_) {
    stop_at_ = deadline;
  }
}

void RunningRun::stop(Stop why) {
  if (kill_at_) {
    return;
  }
  stop_ = why;
  signal_rest(SIGTERM);
  kill_at_ = Clock::now() + kGraceAfterStop;
}

void RunningRun::signal_rest(int signal) {
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

Outcome RunningRun::outcome() const {
  const bool out_of_memory = bnlab::out_of_memory_kills() > out_of_memory_kills_;
  Outcome outcome = judge(mapped(ranks_, &Rank::state), stop_, run_.spec.timeout_s, out_of_memory);
  if (outcome.rank && outcome.status != Status::ok && outcome.status != Status::diverged) {
    outcome.log_tail = log_tail(log_file(run_.folder, *outcome.rank));
  }
  return outcome;
}

RunEnd RunningRun::end() const {
  RunEnd end{started_at_, elapsed_s(), outcome(), nullptr, {}, settings_of(run_)};
  const bool finished = end.outcome.status == Status::ok || end.outcome.status == Status::diverged;
  if (const auto& first = ranks_.front().state.report; finished && first) {
    end.result = first->result;
  }
  for (const Rank& rank : ranks_) {
    if (rank.state.report) {
      end.notes.insert(end.notes.end(), rank.state.report->notes.begin(), rank.state.report->notes.end());
    }
  }
  return end;
}

}  // namespace bnlab
