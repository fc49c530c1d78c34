#include "strategies/engine/bn_rules.hpp"

#include <algorithm>

#include "harness/error.hpp"

namespace bnlab {

Renorm::Limits Renorm::limits(int64_t step) const {
  const double k = static_cast<double>(step);
  const double way = end_step > start_step ? std::clamp((k - start_step) / (end_step - start_step), 0.0, 1.0)
                                           : (k >= end_step ? 1.0 : 0.0);
  return {1 + way * (r_max - 1), way * d_max};
}

void Rules::check(const Towers& towers, bool training) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::refused, strategy + ": " + why);
  };
  if (remember == Remember::tower && saved(towers) >= towers.count()) {
    refuse("tower " + std::to_string(saved_tower) + " cannot be saved, the towers are 0 to " +
           std::to_string(towers.count() - 1));
  }
  if (towers.count() % group(towers) != 0) {
    refuse("group_size " + std::to_string(group_size) + " does not divide the " +
           std::to_string(towers.count()) + " towers");
  }
  for (int64_t t = 0; training && virtual_batch > 0 && t < towers.count(); ++t) {
    if (towers.samples(t) % virtual_batch != 0) {
      refuse("virtual_batch " + std::to_string(virtual_batch) + " does not divide the " +
             std::to_string(towers.samples(t)) + " samples of tower " + std::to_string(t));
    }
  }
}

}  // namespace bnlab
