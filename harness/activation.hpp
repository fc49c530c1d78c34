// What norm sites and the kernels under them agree on: the activation that follows, and the precision of
// statistics.
#pragma once

#include <c10/core/ScalarType.h>

namespace bnlab {

enum class Activation { none, relu };

// The precision of statistics, weights and biases for an input of this dtype.
constexpr at::ScalarType statistics_type(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace bnlab
