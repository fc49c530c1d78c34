// The conformance cases of `bnlab vectors`: batch normalisation over the ranks of a data-parallel program, as
// any framework has it, each case with the mistake that it is there to catch. Values come from streams that
// are named after the case, so a case stays the same when others are added.
#pragma once

#include <string>
#include <vector>

#include "harness/layer/layer_case.hpp"

namespace bnlab {

struct VectorCase {
  std::string name;        // "uneven/5-1/nchw/float32"
  std::string catches;     // one sentence
  LayerCase layer_case;    // a tower is a rank; its values are as its dtype rounds them, held in float64
  size_t ranks_per_group;  // consecutive ranks that share statistics; it divides the ranks
  bool backward_after_all = false;  // all passes go forward before the first goes backward
  bool may_refuse = false;          // there is nothing to normalise: an error is a right answer too
};

std::vector<VectorCase> vector_cases();

// What each rank must answer in the passes of a case, by the float64 reference.
struct VectorAnswer {
  struct Pass {
    std::vector<at::Tensor> outputs, input_gradients;  // one per rank; no gradients: empty
    // Summed over all ranks, [C]; where all passes go backward together, over them too and in the last one
    // alone. Undefined: none.
    at::Tensor weight_gradient, bias_gradient;
    // After the pass, [groups, C]. NaN: not judged, for what becomes of them where a value is not finite is a
    // matter of taste.
    at::Tensor running_mean, running_var;
    // The largest error that the case's precision earns, for each of "output", "grad_input", "grad_weight",
    // "grad_bias", "running_mean" and "running_var": absolute, for every value.
    Json allowed;
  };
  std::vector<Pass> passes;
};

VectorAnswer expected_of(const VectorCase& vector_case);

}  // namespace bnlab
