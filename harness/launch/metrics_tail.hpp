// Follows a run's metrics.jsonl while it is being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bnlab {

class MetricsTail {
 public:
  explicit MetricsTail(std::string file) : file_(std::move(file)) {}

  // Reads the lines that were completed since the last call. The file need not exist yet.
  void read_on();

  int64_t step() const { return step_; }
  double epoch() const { return epoch_; }
  std::optional<double> loss() const { return loss_; }  // of the last "train" line; nothing if not finite

 private:
  std::string file_;
  int64_t offset_ = 0;
  int64_t step_ = 0;
  double epoch_ = 0;
  std::optional<double> loss_;
};

}  // namespace bnlab
