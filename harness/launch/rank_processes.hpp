// The processes of a run's ranks. Those whose run ended well stay and take the next one of the same place,
// because to start a process and to load LibTorch takes longer than a short run.
#pragma once

#include <chrono>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/activity_board.hpp"
#include "harness/launch/job_channel.hpp"
#include "harness/launch/process.hpp"
#include "harness/placement.hpp"

namespace bnlab {

// All that ranks get at their start and keep. Another run may take them where it asks for the same.
struct RanksPlace {
  int ranks = 1;
  Device device = Device::cpu;
  std::optional<Exchange> exchange;
  std::chrono::milliseconds timeout{};          // for collectives
  std::map<std::string, std::string> settings;  // variables
  std::vector<int> gpus;                        // by rank; empty on the CPU

  bool operator==(const RanksPlace&) const = default;
};

class RankProcesses {
 public:
  // Starts the ranks as `PROGRAM rank --job FILE`, with the job in `run_dir`. With `stay` they can go on with
  // other runs.
  RankProcesses(RanksPlace place, const std::string& program, const std::string& run_dir, bool stay);
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();  // ranks that wait for a run end by themselves; the others are killed

  const RanksPlace& place() const { return place_; }
  size_t size() const { return ranks_.size(); }
  int runs_before() const { return runs_before_; }

  // How a rank has ended its part of the run, or nothing while it has not. One that stays has ended it well.
  std::optional<ProcessEnd> poll(size_t rank);
  // To all of them. Called only while one of them has not ended.
  void send(int signal);

  // What the ranks were doing last, while or after they train; empty where none has begun to.
  std::string doing() const { return board_.text(); }

  // Whether every rank has ended its part of the run and waits for another one.
  bool wait_for_a_run();
  // Gives them one. Its job is in `run_dir`.
  void start(const std::string& run_dir);

  // The ends of the channels of those that have not ended their part, for poll(2).
  std::vector<int> channels_under_way() const;

 private:
  struct Rank {
    Process process;  // its destructor kills a rank that still runs
    JobChannel channel;
    bool waits = false;  // for a run
    bool ended = false;
  };

  std::map<std::string, std::string> environment_of(int rank, int port) const;

  RanksPlace place_;
  ActivityBoard board_;
  std::vector<Rank> ranks_;
  int runs_before_ = 0;
};

}  // namespace bnlab
