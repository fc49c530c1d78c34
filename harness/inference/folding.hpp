// A trained network without its norms: what they do in an evaluation is put into the convolutions before
// them, for `bnlab export --folded`. Needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <string>

#include "harness/inference/evaluate_job.hpp"

namespace bnlab {

struct Folded {
  int64_t norms = 0;
  int64_t classes = 0;
  double difference = 0;  // between outputs for a test batch, as a share of the largest
};

// Writes the weights of the same model under the strategy `none`, in float32. Throws Error: refused where a
// norm depends on its input or has no convolution just before it, all of them named, or where the outputs
// differ by 1e-5 or more; otherwise as evaluate_weights does.
Folded write_folded(const EvaluateJob& job, const std::string& out);

}  // namespace bnlab
