#include "strategies/engine/sets.hpp"

#include <algorithm>

namespace bnlab {

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
