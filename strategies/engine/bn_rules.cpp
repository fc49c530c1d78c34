#include "strategies/engine/bn_rules.hpp"

#include <algorithm>

namespace bnlab {

LimitSchedule::Limits LimitSchedule::limits(int64_t step) const {
  const double k = static_cast<double>(step);
  const double way = lacks_length ? 1.0
                     : end_step > start_step
                         ? std::clamp((k - start_step) / (end_step - start_step), 0.0, 1.0)
                         : (k >= end_step ? 1.0 : 0.0);
  return {1 + way * (r_max - 1), way * d_max};
}

Sets sets_of(const Pass& pass, int64_t positions, int64_t virtual_batch) {
  const Towers& towers = pass.towers;
  Sets sets;
  sets.offsets = {0};
  for (int64_t t = 0; t < towers.count(); ++t) {
    const int64_t samples = towers.samples(t);
    const int64_t most = virtual_batch > 0 && samples > 0 ? virtual_batch : samples;
    int64_t begin = 0;
    do {
      const int64_t rows = std::min(most, samples - begin) * pass.rows_per_sample;
      if (towers.is_local(t)) {
        sets.offsets.push_back(sets.offsets.back() + rows);
        sets.local_tower.push_back(t - towers.first());
      } else if (t < towers.first()) {
        ++sets.first;
      }
      sets.elements.push_back(rows * positions);
      begin += most;
    } while (begin < samples);
    sets.towers.push_back(samples * pass.rows_per_sample * positions);
  }
  return sets;
}

std::vector<int64_t> sums_of_groups(const std::vector<int64_t>& elements, int64_t group) {
  std::vector<int64_t> sums(elements.size() / static_cast<size_t>(group), 0);
  for (size_t t = 0; t < elements.size(); ++t) {
    sums[t / static_cast<size_t>(group)] += elements[t];
  }
  return sums;
}

}  // namespace bnlab
