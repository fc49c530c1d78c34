#include "harness/launch/expected_time.hpp"

#include "harness/launch/progress.hpp"

namespace bnlab {

ExpectedTime::ExpectedTime(const std::vector<Record>& records) {
  for (const Record& record : records) {
    for (const Like& like : likes(record.strategy_label(), record.placement())) {
      Sum& sum = sums_[like];
      sum.seconds += record.wall_time_s();
      sum.images += record.number("result.images").value_or(0);
      sum.epochs += record.number("result.epochs").value_or(0);
    }
  }
}

std::optional<double> ExpectedTime::seconds(const PlacedRun& run) const {
  for (const Like& like : likes(label(run.spec.strategy), run.placement.name())) {
    const auto found = sums_.find(like);
    if (found == sums_.end()) {
      continue;
    }
    const Sum& sum = found->second;
    const double work = run.spec.epochs ? sum.epochs : sum.images;  // what work_of counts
    if (work > 0) {
      return sum.seconds / work * work_of(run.spec);
    }
  }
  return std::nullopt;
}

std::array<ExpectedTime::Like, 3> ExpectedTime::likes(const std::string& strategy,
                                                      const std::string& placement) {
  return {Like{strategy, placement}, Like{"", placement}, Like{"", ""}};
}

}  // namespace bnlab
