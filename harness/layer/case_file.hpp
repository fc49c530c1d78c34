// A layer case as `bnlab layer` reads it; a TENSOR is {"shape": [...], "data": [...]}:
//   {"strategy": {"name": ..., ...}, "dtype": "float64", "memory_format": "contiguous", "seed": 0,
//    "weight": [...], "bias": [...], "running_mean": [...], "running_var": [...],
//    "conv": {"v": TENSOR, "gain": [...], "bias": [...], "stride": 1, "padding": 0},
//    "steps": [{"mode": "train", "towers": [{"input": TENSOR, "grad_output": TENSOR}, ...]}, ...]}
#pragma once

#include "harness/json.hpp"
#include "harness/layer/layer_case.hpp"

namespace bnlab {

// Throws Error (spec) with the path of the first key at fault and what was expected there.
LayerCase read_layer_case(const Json& document);

}  // namespace bnlab
