#include "harness/launch/start_program.hpp"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/launch/interrupt_watch.hpp"
#include "harness/launch/process.hpp"
#include "harness/launch/rank_settings.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{20};
constexpr std::chrono::seconds kGrace{2};  // to see that a rank has failed; from SIGTERM to SIGKILL

// As a shell finds it.
std::string program_path(const std::string& program) {
  std::vector<std::string> candidates;
  if (program.find('/') != std::string::npos) {
    candidates.push_back(program);
  } else if (const char* path = ::getenv("PATH")) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      candidates.push_back(folder + "/" + program);
  }
  for (const std::string& candidate : candidates)
    if (std::filesystem::is_regular_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
  const bool here = program.find('/') == std::string::npos && access(program.c_str(), X_OK) == 0;
  throw Error(Error::Kind::usage, "launch: there is no program " + program +
                                      (here ? "; for the one in this folder write ./" + program : ""));
}

std::string told(const ProcessEnd& end) {
  return end.signal != 0 ? "was ended by " + signal_name(end.signal)
                         : "ended with status " + std::to_string(end.code);
}

class StartedRanks {
 public:
  explicit StartedRanks(const ProgramRequest& request) {
    std::vector<std::string> argv = request.words;
    argv.front() = program_path(argv.front());
    const std::string ranks = std::to_string(request.ranks);
    const int port = LoopbackSocket().port();  // free again when rank 0 takes it
    for (int rank = 0; rank < request.ranks; ++rank) {
      ChildCommand command;
      command.argv = argv;
      command.environment = rank_settings();
      command.environment.insert({{"RANK", std::to_string(rank)},
                                  {"WORLD_SIZE", ranks},
                                  {"LOCAL_RANK", std::to_string(rank)},
                                  {"LOCAL_WORLD_SIZE", ranks},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", std::to_string(port)}});
      if (const int threads = threads_of(request); threads > 0)
        command.environment["OMP_NUM_THREADS"] = std::to_string(threads);
      command.group = processes_.empty() ? 0 : processes_.front().id();
      processes_.emplace_back(command);
    }
    ends_.resize(processes_.size());
  }

  int wait() {
    while (std::ranges::any_of(ends_, [](const auto& end) { return !end; })) {
      look();
      if (interrupt_.interrupted() && !interrupted_) {
        interrupted_ = true;
        stop_at_ = Clock::now();
      }
      if (stop_at_ && Clock::now() >= *stop_at_) {
        send(stopped_ ? SIGKILL : SIGTERM);
        stop_at_ = stopped_ ? std::nullopt : std::optional(Clock::now() + kGrace);
        stopped_ = true;
      }
      std::this_thread::sleep_for(kPause);
    }
    return interrupted_ ? 130 : status_;
  }

 private:
  static int threads_of(const ProgramRequest& request) {
    if (request.threads > 0) return request.threads;
    return ::getenv("OMP_NUM_THREADS") != nullptr ? 0 : std::max(1, usable_cores() / request.ranks);
  }

  void look() {
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      if (ends_[rank] || !(ends_[rank] = processes_[rank].poll())) continue;
      const ProcessEnd& end = *ends_[rank];
      if ((end.code != 0 || end.signal != 0) && status_ == 0 && !interrupted_) {
        status_ = end.signal != 0 ? 128 + end.signal : end.code;
        stop_at_ = Clock::now() + kGrace;
        std::cerr << "bnlab launch: rank " << rank << " of " << processes_.size() << " " << told(end) << "\n";
      }
    }
  }

  // To the ranks and to what they have started: workers that load data.
  void send(int signal) { kill(-processes_.front().id(), signal); }

  InterruptWatch interrupt_;  // from before the first rank starts
  std::vector<Process> processes_;
  std::vector<std::optional<ProcessEnd>> ends_;
  std::optional<Clock::time_point> stop_at_;
  bool stopped_ = false, interrupted_ = false;
  int status_ = 0;
};

}  // namespace

int start_program(const ProgramRequest& request) {
  return StartedRanks(request).wait();
}

}  // namespace bnlab
