// What runs will cost, judged by earlier records of the same experiment.
#pragma once

#include <optional>
#include <vector>

#include "harness/launch/placing.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

class Estimate {
 public:
  explicit Estimate(std::vector<Record> records);

  // The mean time per image (or epoch) of the finished runs most like this one (same strategy and placement,
  // else same placement, else any) times its own; nothing if no run has finished.
  std::optional<double> seconds(const PlacedRun& run) const;

  // The largest peak of any rank's memory (RSS); nothing if no record has one.
  std::optional<double> peak_memory_bytes() const;

 private:
  std::vector<Record> records_;
};

}  // namespace bnlab
