#include "harness/report/final_metrics.hpp"

namespace bnlab {

FinalMetrics final_metrics_of(const std::vector<const Record*>& records) {
  FinalMetrics all;
  for (const Record* record : records) {
    if (record->status() != Status::ok) continue;
    for (const auto& [population, metrics] : record->at("result.final").items()) {
      const Json flat = metrics.flatten();
      for (const auto& [path, value] : flat.items()) {
        if (value.is_number())
          all[population][path.substr(1)].emplace_back(record->seed(), value.get<double>());
      }
    }
  }
  return all;
}

}  // namespace bnlab
