// How long runs will take, judged by finished ones.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/launch/placing.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

class ExpectedTime {
 public:
  // The records are of runs that ended ok and say how many images they trained on.
  explicit ExpectedTime(const std::vector<Record>& records);

  // The mean time per image (or epoch) of the finished runs most like this one (same strategy and placement, else
  // same placement, else any) times its own; nothing if no run has finished.
  std::optional<double> seconds(const PlacedRun& run) const;

 private:
  using Like = std::pair<std::string, std::string>;  // strategy and placement; empty: any
  struct Sum {
    double seconds = 0, images = 0, epochs = 0;
  };

  // The most alike first.
  static std::array<Like, 3> likes(const std::string& strategy, const std::string& placement);

  std::map<Like, Sum> sums_;
};

}  // namespace bnlab
