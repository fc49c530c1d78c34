// metrics.jsonl: one JSON object per line, which is in the file as soon as it is written. Rank 0 writes; on the other
// ranks nothing happens.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "harness/json.hpp"
#include "harness/state.hpp"

namespace bnlab {

class RunLog {
 public:
  RunLog() = default;  // writes nothing
  // Begins a new file, or, for a run that goes on, leaves the one that is there until describe() finds its place.
  // All functions throw Error (environment), which names the file and the cause, where the system refuses.
  RunLog(const std::string& file, const std::string& run_id, bool goes_on = false);

  void write(
      Json line);  // adds "time_s", the seconds since the log began, without those between the parts of a run
  // How far the log is, once all of it is on the disk. What lies behind that place in a run that goes on, it writes anew.
  void describe(State& state);

 private:
  using Clock = std::chrono::steady_clock;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  std::unique_ptr<std::FILE, Close> out_;  // null: writes nothing
  Clock::time_point begin_ = Clock::now();
};

}  // namespace bnlab
