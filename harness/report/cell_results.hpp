// What the records of a cell tell over its seeds beyond the numbers that are compared: how loss and accuracy
// moved with the steps, all numbers of the last evaluations, and those of each norm site.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/cells.hpp"

namespace bnlab {

struct CurvePoint {
  int64_t step = 0;
  std::vector<double> values;  // runs that ended ok, one per seed
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

// "train_loss", "gradient_norm" and the headline metric ("mean_iou" under the saved statistics,
// "precise.mean_iou" and its like under others), as far as they were logged. They come from the
// metrics.jsonl beside each record, and where there is none, or a damaged one, which `problems` then says,
// from the record's history.
std::map<std::string, Curves> curves_of(const std::vector<const Record*>& records,
                                        const std::string& headline, std::vector<std::string>& problems);

// By population, then by metric as it stands in `result.final`: "mean_iou", "class_iou/3",
// "groups/0001TP/mean_iou".
using FinalMetrics = std::map<std::string, std::map<std::string, SeedValues>>;

// Of the records that ended ok.
FinalMetrics final_metrics_of(const std::vector<const Record*>& records);

// What records tell of a norm site (results/record.md, `sites`).
struct SiteNumbers {
  std::string name;
  std::map<std::string, SeedValues> numbers;  // "saved_mean_error", "saved_variance_error", "between_sets"
};

// In the order of the network; none where no record tells more than the sites' names.
std::vector<SiteNumbers> site_numbers(const std::vector<const Record*>& records);

}  // namespace bnlab
