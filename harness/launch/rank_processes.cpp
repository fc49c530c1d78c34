#include "harness/launch/rank_processes.hpp"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>

#include "harness/communicator/host/network.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::seconds kGraceAtTheEnd{2};  // for ranks that no run waits for
constexpr std::chrono::milliseconds kLookAgain{2};

// Here a full disk can be told; the rank, which opens it again, could not say it anywhere.
void make_log(const std::string& file) {
  if (!std::ofstream(file, std::ios::app))
    throw Error(Error::Kind::environment, "cannot open " + file + ": " + strerror(errno));
}

}  // namespace

RankProcesses::RankProcesses(RanksPlace place, const std::string& program, const std::string& run_dir,
                             bool stay)
    : place_(std::move(place)), board_(place_.ranks) {
  std::optional<LoopbackSocket> meeting_point;  // closed here once rank 0 has inherited it
  if (place_.ranks > 1) meeting_point.emplace();
  for (int rank = 0; rank < place_.ranks; ++rank) {
    ChildCommand command;
    command.argv = {program, "rank", "--job", job_file(run_dir)};
    command.environment = environment_of(rank, meeting_point ? meeting_point->port() : 0);
    command.log_file = log_file(run_dir, rank);
    command.group = ranks_.empty() ? 0 : ranks_.front().process.id();
    if (rank == 0 && meeting_point) {
      command.inherited_fds.push_back(meeting_point->fd());
      command.environment["BNLAB_LISTEN_FD"] = std::to_string(meeting_point->fd());
    }
    if (board_.fd() >= 0) {
      command.inherited_fds.push_back(board_.fd());
      command.environment[ActivityBoard::kVariable] = std::to_string(board_.fd());
    }
    JobChannel::Ends ends;
    if (stay) {
      ends = JobChannel::make();
      command.inherited_fds.push_back(ends.rank.fd());
      command.environment[kJobChannel] = std::to_string(ends.rank.fd());
    }
    ranks_.push_back({Process(command), std::move(ends.launcher)});
  }
}

RankProcesses::~RankProcesses() {
  if (!wait_for_a_run()) return;
  std::ranges::for_each(ranks_, [](Rank& rank) { rank.channel.close(); });
  const auto deadline = std::chrono::steady_clock::now() + kGraceAtTheEnd;
  for (Rank& rank : ranks_)
    while (!rank.process.poll() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kLookAgain);
}

std::map<std::string, std::string> RankProcesses::environment_of(int rank, int port) const {
  std::map<std::string, std::string> environment = place_.settings;
  const int local_rank = place_.gpus.empty() ? rank : place_.gpus.at(static_cast<size_t>(rank));  // the GPU
  environment.insert({{"RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(place_.ranks)},
                      {"LOCAL_RANK", std::to_string(local_rank)},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(port)},
                      {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  return environment;
}

std::optional<ProcessEnd> RankProcesses::poll(size_t index) {
  Rank& rank = ranks_[index];
  if (!rank.waits && rank.channel.is_open()) {
    const std::optional<std::string> message = rank.channel.look();
    rank.waits = message && !message->empty();
    if (message && message->empty()) rank.channel.close();  // it ends, and would be heard of for ever
  }
  const std::optional<ProcessEnd> end = rank.waits ? ProcessEnd{} : rank.process.poll();
  rank.ended = end.has_value();
  return end;
}

void RankProcesses::send(int signal) {
  // A rank that is not reaped keeps the group's id from being used again.
  kill(-ranks_.front().process.id(), signal);
}

bool RankProcesses::wait_for_a_run() {
  return std::ranges::all_of(ranks_, [](Rank& rank) { return rank.waits && !rank.process.poll(); });
}

void RankProcesses::start(const std::string& run_dir) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) make_log(log_file(run_dir, static_cast<int>(rank)));
  ++runs_before_;
  for (Rank& rank : ranks_) {
    rank.waits = rank.ended = false;
    rank.channel.send(run_dir);
  }
}

std::vector<int> RankProcesses::channels_under_way() const {
  std::vector<int> channels;
  for (const Rank& rank : ranks_)
    if (!rank.ended && rank.channel.is_open()) channels.push_back(rank.channel.fd());
  return channels;
}

}  // namespace bnlab
