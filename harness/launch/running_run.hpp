// One run whose ranks are children of this process: started, watched, stopped, judged.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/books.hpp"
#include "harness/launch/judge.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/process.hpp"

namespace bnlab {

class RunningRun {
 public:
  // Writes the job into the run's folder and starts the ranks as `PROGRAM rank --job FILE`.
  RunningRun(PlacedRun run, const std::string& program, const std::string& data_dir);
  ~RunningRun();  // kills what still runs

  const PlacedRun& run() const { return run_; }

  // Looks at the ranks without waiting, ends the run where a rank failed, fell silent or the time is up.
  // True once all ranks have ended.
  bool poll();
  void stop(Stop why);  // SIGTERM now, SIGKILL a little later (by poll)

  RunEnd end() const;  // once poll() was true

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    Process process;
    RankEnd state;
    bool ended = false;
  };

  void start_ranks(const std::string& program);
  bool collect_ended();  // true if some rank ended since the last look
  void react();          // decides when the others must have ended
  void signal_rest(int signal);
  double elapsed_s() const;
  Outcome outcome() const;

  PlacedRun run_;
  std::vector<Rank> ranks_;
  std::string started_at_;
  Clock::time_point start_;
  std::optional<Clock::time_point> stop_at_;  // when the remaining ranks are told to end
  std::optional<Clock::time_point> kill_at_;  // when those that did not are killed
  Stop stop_ = Stop::none;
  int looks_ = 0;
  long out_of_memory_kills_ = 0;
};

}  // namespace bnlab
