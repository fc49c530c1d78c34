// All numbers of the last evaluations, over the seeds of a cell.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/report/cell_records.hpp"

namespace bnlab {

// By population, then by metric as it stands in `result.final`: "mean_iou", "class_iou/3", "groups/0001TP/mean_iou".
using FinalMetrics = std::map<std::string, std::map<std::string, SeedValues>>;

// Of the records that ended ok.
FinalMetrics final_metrics_of(const std::vector<const Record*>& records);

}  // namespace bnlab
