// Options of a BatchNorm and the strategy that follows from them.
#pragma once

#include <optional>

#include "harness/embed/bnlab/batch_norm.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// The strategy, or the base that it is built on, that has this key; null where neither has.
template <class AnyJson>
AnyJson* that_has(AnyJson& strategy, const char* key) {
  return strategy.contains(key)      ? &strategy
         : strategy.contains("base") ? that_has(strategy.at("base"), key)
                                     : nullptr;
}

inline std::optional<double> momentum_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<double>(json);
}

// The resolved strategy, by its JSON and by the module's own options, of which the JSON counts first. Throws
// Error (spec).
Json strategy_of(const BatchNormOptions& options);
// With the module's own options that the strategy's JSON gives.
BatchNormOptions completed(BatchNormOptions options);
// Options that have been written since `before`, whose resolved strategy is `strategy`: they count before
// what the JSON has said of them.
BatchNormOptions told(BatchNormOptions written, const BatchNormOptions& before, const Json& strategy);

// Whether both make the same strategy but for eps and momentum; and whether passes are the same that only
// read the rest.
bool make_the_same(const BatchNormOptions& a, const BatchNormOptions& b);
bool pass_the_same(const BatchNormOptions& a, const BatchNormOptions& b);

}  // namespace bnlab
