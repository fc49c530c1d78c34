// The loss scale of float16 runs. Gradients of activations below 6e-8 are zeros in float16, so the loss is
// multiplied with a scale before the backward pass, and the gradients of the weights, which are float32, are
// divided by it. Where one of them is not finite then, the step changes no weight, and the scale shrinks;
// after `interval` steps in a row it grows (as PyTorch's GradScaler does it, by the same two operations).
// Gradients have met over the ranks before, so that all ranks decide alike. Schedules of learning rates go by
// steps, skipped or not.
#pragma once

#include <torch/types.h>

#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class LossScale {
 public:
  LossScale(const LossScaling& options, at::Device device);

  at::Tensor scaled(const at::Tensor& loss) const { return loss * scale_.squeeze(); }
  at::Tensor unscaled(const at::Tensor& loss) const { return loss.detach() / scale_.squeeze(); }
  // Divides the gradients by the scale, in place, and sets the next step's scale. Whether all of them are
  // finite, so that the step counts. Waits for the device.
  bool unscale(const std::vector<at::Tensor>& parameters);

  void describe(State& state);
  // {"scale", "skipped_steps"}
  Json summary() const;

 private:
  LossScaling options_;
  at::Tensor scale_;   // float32 [1]
  at::Tensor growth_;  // int32 [1]: steps in a row with finite gradients
  int64_t skipped_ = 0;
};

}  // namespace bnlab
