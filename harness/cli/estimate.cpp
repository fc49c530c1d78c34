#include "harness/cli/estimate.hpp"

#include <algorithm>

#include "harness/launch/progress.hpp"

namespace bnlab {

Estimate::Estimate(std::vector<Record> records) : records_(std::move(records)) {
  std::erase_if(records_,
                [](const Record& r) { return r.status() != Status::ok || !r.number("result.images"); });
}

std::optional<double> Estimate::seconds(const PlacedRun& run) const {
  const std::string placement = run.placement.name();
  const std::string strategy = label(run.spec.strategy);
  for (int likeness = 2; likeness >= 0; --likeness) {
    double seconds = 0;
    double images = 0;
    double epochs = 0;
    for (const Record& record : records_) {
      if ((likeness == 2 && record.strategy_label() != strategy) ||
          (likeness >= 1 && record.placement() != placement)) {
        continue;
      }
      seconds += record.wall_time_s();
      images += *record.number("result.images");
      epochs += record.number("result.epochs").value_or(0);
    }
    const double work = run.spec.epochs ? epochs : images;  // what work_of counts
    if (work > 0) {
      return seconds / work * work_of(run.spec);
    }
  }
  return std::nullopt;
}

std::optional<double> Estimate::peak_memory_bytes() const {
  std::optional<double> largest;
  for (const Record& record : records_) {
    for (const Json& peak : record.at("result.memory.peak_rss_bytes")) {
      if (peak.is_number()) {
        largest = std::max(largest.value_or(0), peak.get<double>());
      }
    }
  }
  return largest;
}

}  // namespace bnlab
