// How loss and accuracy of a cell moved with the steps, over its seeds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

struct CurvePoint {
  int64_t step = 0;
  std::vector<double> values;  // of the runs that ended ok, one per seed
};

// A run that did not end ok has a curve of its own, which stands in no mean.
struct FailedCurve {
  uint64_t seed = 0;
  Status status = Status::crashed;
  std::map<int64_t, double> values;  // by step
};

struct Curves {
  std::vector<CurvePoint> points;  // by step
  std::vector<FailedCurve> failed;
};

// "train_loss", "gradient_norm" and the headline metric ("mean_iou" under the saved statistics, "precise.mean_iou" and its
// like under others), as far as they were logged: from the metrics.jsonl beside each record, where there is none from
// the record's history. Throws Error (data) for a line
// that is no JSON; the last one may be cut off.
std::map<std::string, Curves> curves_of(const std::vector<const Record*>& records,
                                        const std::string& headline);

}  // namespace bnlab
