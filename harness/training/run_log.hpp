// metrics.jsonl: one JSON object per line, flushed line by line, while a run is under way. Rank 0 writes;
// on the other ranks nothing happens.
#pragma once

#include <chrono>
#include <fstream>
#include <string>

#include "harness/json.hpp"

namespace bnlab {

class RunLog {
 public:
  RunLog() = default;  // writes nothing
  RunLog(const std::string& file, const std::string& run_id) : out_(file) {
    write({{"kind", "start"}, {"schema_version", 1}, {"run_id", run_id}});
  }

  // Adds "time_s", the seconds since the log began.
  void write(Json line) {
    if (out_.is_open()) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
      line["time_s"] = elapsed.count();
      out_ << line.dump() << std::endl;
    }
  }

 private:
  std::ofstream out_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace bnlab
