#include "harness/experiment/measures.hpp"

#include <algorithm>
#include <texts/measures.hpp>

#include "harness/support/mapped.hpp"

namespace bnlab {

const std::vector<Measure>& measures() {
  static std::vector<Measure> all = mapped(Json::parse(kMeasures), read_options<Measure>);
  return all;
}

const Measure* find_measure(const std::string& key) {
  const auto found = std::ranges::find(measures(), key, &Measure::key);
  return key.empty() || found == measures().end() ? nullptr : &*found;
}

Measure measure_of(const std::string& metric) {
  if (const Measure* measure = find_measure(metric)) return *measure;
  Measure score;
  score.key = score.title = metric;
  return score;
}

}  // namespace bnlab
