#include "strategies/engine/bn_rules.hpp"

#include <algorithm>

namespace bnlab {

Route route_taken(Route route, int ranks) {
  if (route != Route::automatic) {
    return route;
  }
  return ranks <= kRanksThatGather ? Route::all_gather : Route::all_reduce;
}

Renorm::Limits Renorm::limits(int64_t step) const {
  const double k = static_cast<double>(step);
  const double way = end_step > start_step ? std::clamp((k - start_step) / (end_step - start_step), 0.0, 1.0)
                                           : (k >= end_step ? 1.0 : 0.0);
  return {1 + way * (r_max - 1), way * d_max};
}

}  // namespace bnlab
