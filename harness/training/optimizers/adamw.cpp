// adamw: Adam with decoupled weight decay, in PyTorch's form. Of a parameter's k-th update:
//   weight <- weight - rate decay weight
//   mean <- beta1 mean + (1 - beta1) gradient, square <- beta2 square + (1 - beta2) gradient^2
//   weight <- weight - rate (mean / (1 - beta1^k)) / (sqrt(square / (1 - beta2^k)) + eps)
// Rate, decay and clipping: grouped_optimizer.hpp. (Loshchilov and Hutter, ICLR 2019)
#include <torch/types.h>

#include <array>

#include "harness/components/registry.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/optimizers/grouped_optimizer.hpp"

namespace bnlab::adamw {

struct AdamWOptions : OptimizerOptions {
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;

  AdamWOptions() {
    rate.lr = 1e-3;
    weight_decay = 1e-2;
  }

  void describe(OptionVisitor& option) {
    OptimizerOptions::describe(option);
    option("betas", betas, "weights of the previous mean and mean square of the gradient")
        .at_least(0)
        .below(1);
    option("eps", eps, "added to the root of the mean square").above(0);
    option("weight_decay", weight_decay, "share of the weight that a step takes off, times the rate")
        .at_least(0);
  }
};

class AdamW : public GroupedOptimizer {
 public:
  using Options = AdamWOptions;

  AdamW(const Options& options, const Context& context)
      : GroupedOptimizer(options, context),
        options_(options),
        means_(zeros()),
        squares_(zeros()),
        updates_(mapped(
            means_, [](const at::Tensor& mean) { return at::zeros({}, mean.options().dtype(at::kFloat)); })) {
  }

  // The numbers of updates are the same on every rank.
  std::vector<at::Tensor> state() const override {
    Tensors all = means_;
    all.insert(all.end(), squares_.begin(), squares_.end());
    return all;
  }

  void describe(State& described) override {
    Optimizer::describe(described);
    for (size_t i = 0; i < updates_.size(); ++i)
      described.tensor("optimizer.updates." + std::to_string(i), updates_[i]);
  }

 protected:
  void update(const Share& share) override {
    const Tensors updates = picked(updates_, share);
    at::_foreach_add_(updates, 1);
    const Tensors means = picked(means_, share), squares = picked(squares_, share);
    const auto with = [&](const auto& rate) {
      at::_fused_adamw_(share.weights, share.gradients, means, squares, /*max_exp_avg_sqs=*/{}, updates, rate,
                        options_.betas[0], options_.betas[1], share.decay, options_.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
    };
    std::visit(with, share.rate);
  }

 private:
  Options options_;
  Tensors means_, squares_;
  Tensors updates_;  // by parameter, counted on its device: those while it was frozen are left out
};

const Registered<Optimizer> entry{
    {.name = "adamw",
     .summary = "Adam with decoupled weight decay (PyTorch's form) and a learning-rate schedule",
     .source = "Loshchilov and Hutter, ICLR 2019"},
    make<Optimizer, AdamW>};

}  // namespace bnlab::adamw
