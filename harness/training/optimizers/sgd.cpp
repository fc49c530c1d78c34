// sgd: stochastic gradient descent with momentum, in PyTorch's form:
//   buffer <- momentum buffer + (gradient + decay weight), weight <- weight - rate buffer
// Without momentum there is no buffer. Rate, decay and clipping: grouped_optimizer.hpp.
#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/training/optimizers/grouped_optimizer.hpp"

namespace bnlab::sgd {

struct SgdOptions : OptimizerOptions {
  double momentum = 0.9;
  bool nesterov = false;

  void describe(OptionVisitor& option) {
    OptimizerOptions::describe(option);
    option("momentum", momentum, "weight of the previous update").at_least(0).at_most(1);
    option("nesterov", nesterov, "Nesterov's form of momentum");
    option("weight_decay", weight_decay, "L2 penalty, added to the gradient").at_least(0);
  }

  void check(const RunOutline& run, Problems& problems) const {
    OptimizerOptions::check(run, problems);
    if (nesterov && momentum == 0) problems.add("nesterov", "expected false where momentum is 0, got true");
  }
};

class Sgd : public GroupedOptimizer {
 public:
  using Options = SgdOptions;

  Sgd(const Options& options, const Context& context)
      : GroupedOptimizer(options, context),
        options_(options),
        momenta_(options.momentum != 0 ? zeros() : Tensors()) {}

  std::vector<at::Tensor> state() const override { return momenta_; }

 protected:
  void update(const Share& share) override {
    const Tensors momenta = options_.momentum != 0 ? picked(momenta_, share) : Tensors();
    const auto with = [&](const auto& rate) {
      at::_fused_sgd_(share.weights, share.gradients, momenta, share.decay, options_.momentum, rate,
                      /*dampening=*/0.0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    };
    std::visit(with, share.rate);
  }

 private:
  Options options_;
  Tensors momenta_;  // none where the momentum is 0
};

const Registered<Optimizer> entry{
    {.name = "sgd",
     .summary = "stochastic gradient descent with momentum (PyTorch's form) and a learning-rate schedule"},
    make<Optimizer, Sgd>};

}  // namespace bnlab::sgd
