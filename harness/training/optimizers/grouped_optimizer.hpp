// What all optimizers share: the learning rate of a step, groups of parameters with rates and decays of their
// own, and the clipping of gradients. A class that derives from GroupedOptimizer says what it remembers of a
// parameter and how parameters change.
//
// A parameter's rate is multiplied by the lr_multiplier of its group, and by norm_lr_multiplier where it
// belongs to a norm site. Its group is the one with the longest prefix that its name begins with. Its decay
// is the group's weight_decay, else the optimizer's; decay acts on tensors of two dimensions and more, and on
// norm parameters and biases only with decay_norm_and_bias.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/training/optimizers/learning_rate.hpp"
#include "harness/training/optimizers/optimizer.hpp"

namespace bnlab {

struct RunOutline;

struct ParameterGroup {
  std::string prefix;
  double lr_multiplier = 1;
  std::optional<double> weight_decay;

  void describe(OptionVisitor& option);
};

struct OptimizerOptions {
  LearningRate rate;
  double weight_decay = 0;  // declared by each optimizer, which says what decay means
  bool decay_norm_and_bias = false;
  double norm_lr_multiplier = 1;
  std::vector<ParameterGroup> groups;
  std::optional<double> clip_gradient_norm;

  void describe(OptionVisitor& option);
  void check(const RunOutline& run, Problems& problems) const;
};

using Tensors = std::vector<at::Tensor>;

class GroupedOptimizer : public Optimizer {
 public:
  // Throws Error (refused) where a group gets no parameter.
  GroupedOptimizer(const OptimizerOptions& options, const Context& context);

  double learning_rate(int64_t step) const override;
  void step(int64_t step, const Trainable& trainable) override;

 protected:
  // Parameters that share a rate and a decay, so that one fused update serves them.
  struct Share {
    std::vector<size_t> places;  // of the parameters, in the order of the network
    Tensors weights, gradients;
    double rate = 0, decay = 0;
  };
  virtual void update(const Share& share) = 0;

  // A tensor of zeros for every parameter.
  Tensors zeros() const;
  // Those of `all`, which has one for every parameter, that belong to a share.
  static Tensors picked(const Tensors& all, const Share& share);

 private:
  struct Slot {
    std::string name;
    at::Tensor weight;
    double lr_multiplier;
    double weight_decay;
  };

  OptimizerOptions options_;
  int64_t steps_;
  std::vector<Slot> slots_;
};

// The norm of all gradients together, []. Nothing waits for the device.
at::Tensor total_norm(const Tensors& gradients);

}  // namespace bnlab
