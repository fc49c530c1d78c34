#include "strategies/engine/bn_rules.hpp"

#include <algorithm>

#include "harness/support/error.hpp"

namespace bnlab {

Sets Sets::repeated(int64_t passes) const {
  const auto each = [&](const std::vector<int64_t>& values) {
    std::vector<int64_t> all;
    for (const int64_t value : values) all.insert(all.end(), static_cast<size_t>(passes), value);
    return all;
  };
  return {.offsets = {},
          .elements = each(elements),
          .local_tower = each(local_tower),
          .first = first * passes,
          .towers = towers};
}

Sets sets_of(const Towers& towers, int64_t rows_per_sample, int64_t positions, int64_t virtual_batch) {
  Sets sets;
  sets.offsets = {0};
  for (int64_t t = 0; t < towers.count(); ++t) {
    const int64_t samples = towers.samples(t), of_row = towers.positions(t, positions);
    const int64_t most = virtual_batch > 0 && samples > 0 ? virtual_batch : samples;
    int64_t begin = 0;
    do {
      const int64_t rows = std::min(most, samples - begin) * rows_per_sample;
      if (towers.is_local(t)) {
        sets.offsets.push_back(sets.offsets.back() + rows);
        sets.local_tower.push_back(t - towers.first());
      } else if (t < towers.first()) {
        ++sets.first;
      }
      sets.elements.push_back(rows * of_row);
      begin += most;
    } while (begin < samples);
    sets.towers.push_back(samples * rows_per_sample * of_row);
  }
  return sets;
}

std::vector<int64_t> sums_of_groups(const std::vector<int64_t>& elements, int64_t group) {
  std::vector<int64_t> sums(elements.size() / static_cast<size_t>(group), 0);
  for (size_t t = 0; t < elements.size(); ++t) sums[t / static_cast<size_t>(group)] += elements[t];
  return sums;
}

void check_pass(const std::string& site, const Rules& rules, const Pass& pass, const Sets& sets) {
  if (pass.mode == Mode::evaluate_batch) return;
  const bool trains = pass.mode == Mode::train, pools = rules.pools();
  const int64_t group = pools ? rules.group(pass.towers) : 1;
  if (trains && rules.renorm && rules.renorm->lacks_length) {
    throw Error(
        Error::Kind::refused,
        rules.strategy +
            ": schedule: the limits rise from 10 % to 50 % of a run, whose length is not known here; give "
            "start_step and end_step, or null for full limits at once, or the number of steps of the run");
  }
  const int64_t expected = trains ? rules.samples_per_set : 0;  // as the run's training batches have them
  for (const int64_t samples : sums_of_groups(pass.towers.all_samples(), group)) {
    if (expected > 0 && (pools ? samples != expected : samples % expected != 0)) {
      throw Error(Error::Kind::refused,
                  rules.strategy + ": expected " + std::to_string(expected) +
                      " samples in every set, as in the batches that the layer was made for, but a " +
                      (pools ? "group of towers" : "tower") + " has " + std::to_string(samples) + " (site " +
                      site + ")");
    }
  }
  if (std::ranges::count(sums_of_groups(sets.elements, group), 1) > 0) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " + site +
                                          ", strategy " + rules.strategy + ", set of 1)");
  }
}

}  // namespace bnlab
