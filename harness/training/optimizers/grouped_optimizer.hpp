// What all optimizers share: the learning rate of a step, groups of parameters with rates and decays of their
// own, and the clipping of gradients. A class that derives from GroupedOptimizer says what it remembers of a
// parameter and how parameters change.
//
// A parameter's rate is multiplied by the lr_multiplier of its group, and by norm_lr_multiplier where it
// belongs to a norm site. Its group is the one with the longest prefix that its name begins with. Its decay
// is the group's weight_decay, else the optimizer's; decay acts on tensors of two dimensions and more, and on
// norm parameters and biases only with decay_norm_and_bias.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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
  std::optional<double> clip_gradient_adaptive;
  std::vector<std::string> clip_adaptive_skip = {"head."};

  void describe(OptionVisitor& option);
  void check(const RunOutline& run, Problems& problems) const;
};

using Tensors = std::vector<at::Tensor>;

class GroupedOptimizer : public Optimizer {
 public:
  // Throws Error (refused) where a group gets no parameter.
  GroupedOptimizer(const OptimizerOptions& options, const Context& context);

  double learning_rate(int64_t step) const override;
  using Optimizer::step;
  void step(int64_t step, const Trainable& trainable, StepBytes* bytes) override;
  bool can_be_recorded() const override;
  at::Tensor gradient_norm() const override;

 protected:
  // Parameters that share a rate and a decay, so that one fused update serves them.
  struct Share {
    std::vector<size_t> places;  // parameters, in the order of the network
    Tensors weights, gradients;
    std::variant<double, at::Tensor> rate;  // a tensor, [] on the device, where updates may be recorded
    double decay = 0;
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

  // LibTorch's fused updates take a rate from a GPU in float32. There it is rounded to that where it is given
  // as a number, too, so that both come to the same, unless the weights are of float64.
  at::ScalarType rate_type() const;
  using Shares = std::map<std::pair<double, double>, Share>;  // by multiplier and decay
  void set_rates(Shares& shares, int64_t step, StepBytes* bytes) const;
  Tensors all_gradients() const;

  OptimizerOptions options_;
  int64_t steps_;
  std::vector<Slot> slots_;
  at::Tensor clipped_norm_;  // before clipping; undefined where gradients are not clipped
};

}  // namespace bnlab
