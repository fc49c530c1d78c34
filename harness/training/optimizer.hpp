// SGD with momentum (PyTorch's form: buffer <- momentum buffer + gradient + weight_decay weight), its
// learning-rate schedule, and the optimizer family of the spec.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "harness/json.hpp"

namespace bnlab {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// lr(step) = lr * min(1, (step + 1) / warmup_steps) * (1 - step / steps)^power ("poly"; "constant": without).
double learning_rate(const Json& optimizer, int64_t step, int64_t steps);

class Sgd {
 public:
  // Weight decay acts on tensors of two dimensions and more; on norm parameters and biases too with
  // decay_norm_and_bias.
  Sgd(const Json& optimizer, std::vector<NamedTensor> parameters);

  // One update with the gradients at hand; parameters for which `trainable` is false stay unchanged to
  // the bit, their momentum too.
  void step(double lr, const std::function<bool(const std::string&)>& trainable);

 private:
  struct Slot {
    NamedTensor parameter;
    at::Tensor momentum;
    bool decays;
  };
  std::vector<Slot> slots_;
  double momentum_, weight_decay_;
  bool nesterov_;
};

}  // namespace bnlab
