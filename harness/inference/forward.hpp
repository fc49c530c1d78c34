// What a network answers for given images with the weights of a file, and its gradients: to check an import,
// or to compare a network with another implementation of it. The command line uses it, so it needs no
// LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "harness/components/options.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// train: normalised by the moments of the batch, which the running statistics take up; evaluate: by the
// running statistics.
BNLAB_CHOICE(ForwardMode, train, evaluate)

struct ForwardRequest {
  Json strategy = {}, model = {};  // resolved components
  int64_t classes = 1;
  std::string weights;  // a safetensors file, from a run or from elsewhere (load_weights)
  // A safetensors file with `images` [n, 3, H, W] of float32 or float64, in which all is computed; as wanted
  // with `grad_logits` and `grad_auxiliary`, what the gradients of a loss with respect to the outputs are.
  std::string inputs;
  int64_t rows_per_sample = 1;  // images of a sample: the frames of a clip
  ForwardMode mode = ForwardMode::evaluate;
  std::string device = "cpu";  // "cpu", "cuda"
  // Where the answer goes, a safetensors file: `logits`, and `auxiliary` where the network has such a head
  // and trains; with a gradient given, `grad/images` and `grad/NAME` of every parameter; after training,
  // `after/NAME` of the running statistics.
  std::string out;
};

// The samples form one tower. Returns what was used of the weights, and what was left. Throws Error: data for
// a file that cannot be used, refused where weights, model and images do not fit, environment where the
// device is lacking.
std::string run_forward_pass(const ForwardRequest& request);

}  // namespace bnlab
