// SGD with momentum (PyTorch's form: buffer <- momentum buffer + gradient + weight_decay weight), its
// learning-rate schedule, and the parameter groups that have rates and decays of their own.
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
  // A parameter's rate is multiplied by the lr_multiplier of its group, and by norm_lr_multiplier if it
  // belongs to one of the norm sites. Its group is the one of `groups` with the longest prefix that its name
  // begins with; Error (refused) where a group gets no parameter. Decay is the group's weight_decay, else the
  // optimizer's; it acts on tensors of two dimensions and more, on norm parameters and biases too with
  // decay_norm_and_bias.
  Sgd(const Json& optimizer, std::vector<NamedTensor> parameters, const std::vector<std::string>& norm_sites);

  // One update with the gradients at hand; parameters for which `trainable` is false stay unchanged to
  // the bit, their momentum too.
  void step(double lr, const std::function<bool(const std::string&)>& trainable);

  // The momentum buffers, in the order of the parameters; written to by every step.
  std::vector<at::Tensor> momenta() const;

 private:
  struct Slot {
    NamedTensor parameter;
    at::Tensor momentum;
    double lr_multiplier;
    double weight_decay;
  };
  std::vector<Slot> slots_;
  double momentum_;
  bool nesterov_;
};

}  // namespace bnlab
