// The float64 reference of a strategy: what its layer must answer, from formulas on the gathered global
// batch, sharing no code with the engine. Registered under the strategy's name.
#pragma once

#include <memory>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"

namespace bnlab {

class Reference {
 public:
  static constexpr const char* kFamily = "reference";
  struct Context {};

  virtual ~Reference() = default;

  // The answer to a case, everything in float64 on the CPU whatever the case's dtype (inputs as the dtype
  // rounds them). `collectives` and `nonfinite_channels` stay empty. Throws Error where the strategy must
  // refuse.
  virtual LayerAnswer answer(const LayerCase& layer_case) const = 0;

  // The option objects (without "name") under which the strategy is to be verified; {} is among them.
  virtual std::vector<Json> variants() const = 0;

  // Whether the site is a convolution (LayerCase::conv must be given).
  virtual bool convolves() const { return false; }

  // By what factor the strategy's own arithmetic magnifies rounding on this case: 1, or 1 + m^2/v where it
  // subtracts the square of the mean.
  virtual double conditioning(const LayerCase& /*layer_case*/) const { return 1; }
};

// The reference of {"name": ..., options}.
inline std::unique_ptr<Reference> reference_of(const Json& strategy) {
  return Registered<Reference>::create({{"name", strategy.at("name")}}, {});
}

}  // namespace bnlab
