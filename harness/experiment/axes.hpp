// The axes of a matrix: {"towers,batch_per_tower": [[16, 1], [8, 2]], "strategy": ["sync", "none"]}.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/json.hpp"

namespace bnlab {

// One value that an axis gives one key.
struct Setting {
  std::string key;  // "strategy"
  Json value;
  std::string path;  // where it was written: "matrix.strategy[2]"
};

struct Axis {
  std::string path;                             // "matrix.strategy"
  std::vector<std::string> keys;                // more than one where keys move together
  std::vector<std::vector<Setting>> positions;  // one setting per key

  std::string position_path(size_t position) const { return path + "[" + std::to_string(position) + "]"; }
};

// The axes in the order of the loops: seeds outermost, strategies innermost, others in file order.
// An axis with a mistake is reported and left out; its keys' top levels go to `mistaken`.
std::vector<Axis> read_axes(const Json& matrix, Mistakes& mistakes, std::set<std::string>& mistaken);

}  // namespace bnlab
