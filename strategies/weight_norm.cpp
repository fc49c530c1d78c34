// weight_norm: weights are normalised, not activations (Salimans and Kingma 2016), and gain and bias are set
// from the first batch (weight_norm_convolution.hpp). Norm sites only add the residual and activate. With
// mean_only_bn the mean over the tower, or over all towers, is subtracted behind every convolution.
#include <torch/types.h>

#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/identity.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/weight_norm_convolution.hpp"

namespace bnlab::weight_norm {

BNLAB_CHOICE(Init, data, none)
BNLAB_CHOICE(Scope, tower, pooled)

class WeightNorm : public BnStrategy {
 public:
  struct Options {
    Init init = Init::data;
    double init_scale = 1;
    bool mean_only_bn = false;
    Scope scope = Scope::tower;
    std::optional<double> momentum = 0.1;

    void describe(OptionVisitor& option) {
      option("init", init, "gain and bias from the first global batch; none: norm(v) and 0");
      option("init_scale", init_scale, "standard deviation of every unit after that").above(0);
      option("mean_only_bn", mean_only_bn, "subtract the batch mean behind every convolution");
      option("scope", scope, "of mean_only_bn: the mean of each tower, or of all towers");
      option("momentum", momentum,
             "of mean_only_bn: weight of the new value in the running mean; null: cumulative average")
          .at_least(0)
          .at_most(1);
    }

    // Keys that would have no effect are mistakes.
    void check(const RunOutline&, Problems& problems) const {
      const Options standard;
      const auto refuse_unused = [&](const char* key, bool changed, bool used, const std::string& needs) {
        if (changed && !used)
          problems.add(key, "has no effect without " + needs + "; add that or leave " + key + " out");
      };
      refuse_unused("scope", scope != standard.scope, mean_only_bn, "mean_only_bn true");
      refuse_unused("momentum", momentum != standard.momentum, mean_only_bn, "mean_only_bn true");
      refuse_unused("init_scale", init_scale != standard.init_scale, init == Init::data, "init \"data\"");
    }

    bool has_running_statistics() const { return mean_only_bn; }
    bool makes_convolutions() const { return true; }

    Rules rules() const {
      const bool pooled = scope == Scope::pooled;
      Rules rules;
      rules.strategy = "weight_norm";
      rules.normalise_by = pooled ? NormaliseBy::pooled : NormaliseBy::local;
      rules.remember = pooled ? Remember::pooled : Remember::mean;
      rules.mean_only = true;
      rules.affine = false;
      rules.momentum = momentum;
      return rules;
    }
  };

  WeightNorm(const Options& options, const Context& context)
      : BnStrategy(options.rules(), context), mean_only_bn_(options.mean_only_bn) {
    if (options.init == Init::data && context.fresh_weights) init_scale_ = options.init_scale;
  }

  std::shared_ptr<Layer> norm(const NormSite& site) override { return std::make_shared<Identity>(site); }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    const auto options = at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype));
    return std::make_shared<WeightNormConvolution>(
        site, initial_weights(site, context_.seed).to(options), init_scale_,
        mean_only_bn_ ? BnStrategy::norm({site.name, site.out, Activation::none}) : nullptr,
        context_.statistics);
  }

  bool normalises_weights() const override { return true; }

  RunningStatistics* running_statistics() override {
    return mean_only_bn_ ? BnStrategy::running_statistics() : nullptr;
  }

  StepWork work(const Step& step) const override {
    return mean_only_bn_
               ? BnStrategy::work(step)
               : StepWork{.sets_up = step.index == 0, .meets = step.index == 0};  // it may initialise
  }

 private:
  bool mean_only_bn_;
  std::optional<double> init_scale_;  // nothing: no initialisation from data
};

const Registered<Strategy> entry{
    {.name = "weight_norm",
     .summary = "weights are normalised instead of activations, with gain and bias set from the first batch",
     .source = "Salimans and Kingma 2016",
     .formula = "w = gain v / norm(v) per output channel; y = conv(x, w) + bias, for every convolution\n"
                "init data, in step 0 over the global batch, of accumulated passes the first:\n"
                "  t = conv(x, v / norm(v)),\n"
                "  gain = init_scale / std(t), bias = -mean(t) gain (0 with mean_only_bn)\n"
                "init none: gain = norm(v), bias = 0\n"
                "mean_only_bn: y = conv(x, w) - m + bias, m the mean over the tower or over all towers;\n"
                "  dx = dy - mean(dy); evaluation subtracts the running mean",
     .exchanges = "none; mean_only_bn with scope pooled: 1 forward, 1 backward; init data: 1 more in step 0",
     .use = "when samples must not depend on one another at all, or (mean_only_bn) only through a mean",
     .limits =
         "the activations' scale is set once, at the start, and not held afterwards; it wants a smaller "
         "learning rate than batch norm"},
    make<Strategy, WeightNorm>};

}  // namespace bnlab::weight_norm
