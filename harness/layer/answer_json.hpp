// The answer to a layer case as `bnlab layer` prints it:
//   {"steps": [{"towers": [{"output": TENSOR, "grad_input": TENSOR}, ...], "grad_weight": [...], ...}, ...]}
#pragma once

#include "harness/json.hpp"
#include "harness/layer/layer_case.hpp"

namespace bnlab {

Json answer_json(const LayerAnswer& answer);

}  // namespace bnlab
