// weight_norm: weights are normalised, not activations (Salimans and Kingma 2016). Every convolution has
// w = gain v / norm(v) per output channel, with gain and bias set from the first batch
// (weight_norm_convolution.hpp); norm sites only add the residual and activate. With mean_only_bn the mean
// over the tower, or over all towers, is subtracted behind every convolution: y = conv(x, w) - m + bias.
#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/identity.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/weight_norm_convolution.hpp"

namespace bnlab {
namespace {

constexpr double kInitScale = 1, kMomentum = 0.1;  // defaults

class WeightNorm : public BnStrategy {
 public:
  WeightNorm(const Json& options, const Context& context)
      : BnStrategy(mean_rules(options), context), mean_only_bn_(options.at("mean_only_bn").get<bool>()) {
    const bool from_data = options.at("init") == "data";
    refuse_unused(options, "scope", "tower", mean_only_bn_, "mean_only_bn true");
    refuse_unused(options, "momentum", kMomentum, mean_only_bn_, "mean_only_bn true");
    refuse_unused(options, "init_scale", kInitScale, from_data, "init \"data\"");
    if (from_data && context.fresh_weights) {
      init_scale_ = options.at("init_scale").get<double>();
    }
  }

  std::shared_ptr<Layer> norm(const NormSite& site) override { return std::make_shared<Identity>(site); }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    const auto held = at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype));
    return std::make_shared<WeightNormConvolution>(
        site, initial_weights(site, context_.seed).to(held), init_scale_,
        mean_only_bn_ ? BnStrategy::norm({site.name, site.out, Activation::none}) : nullptr,
        context_.statistics);
  }

  RunningStatistics* running_statistics() override {
    return mean_only_bn_ ? BnStrategy::running_statistics() : nullptr;
  }

 private:
  static Rules mean_rules(const Json& options) {
    const bool pooled = options.at("scope") == "pooled";
    const Json& momentum = options.at("momentum");
    Rules rules;
    rules.strategy = "weight_norm";
    rules.normalise_by = pooled ? NormaliseBy::pooled : NormaliseBy::own;
    rules.remember = pooled ? Remember::pooled : Remember::mean;
    rules.mean_only = true;
    rules.affine = false;
    rules.momentum = momentum.is_null() ? std::nullopt : std::optional<double>(momentum.get<double>());
    return rules;
  }

  static void refuse_unused(const Json& options, const char* key, const Json& standard, bool used,
                            const std::string& needs) {
    if (!used && options.at(key) != standard) {
      throw Error(Error::Kind::refused, std::string("weight_norm: ") + key + " " + options.at(key).dump() +
                                            " has no effect without " + needs + "; add that or leave " + key +
                                            " out");
    }
  }

  bool mean_only_bn_;
  std::optional<double> init_scale_;  // nothing: no initialisation from data
};

const Registered<Strategy> entry{
    {.name = "weight_norm",
     .summary = "weights are normalised instead of activations, with gain and bias set from the first batch",
     .parameters =
         {Parameter::choice("init", "data", {"data", "none"},
                            "gain and bias from the first global batch; none: norm(v) and 0"),
          Parameter::number("init_scale", kInitScale, "standard deviation of every unit after that").above(0),
          Parameter::boolean("mean_only_bn", false, "subtract the batch mean behind every convolution"),
          Parameter::choice("scope", "tower", {"tower", "pooled"},
                            "of mean_only_bn: the mean of each tower, or of all towers"),
          Parameter::number(
              "momentum", kMomentum,
              "of mean_only_bn: weight of the new value in the running mean; null: cumulative average")
              .above(0)
              .at_most(1)
              .or_null()},
     .source = "Salimans and Kingma 2016",
     .formula = "w = gain v / norm(v) per output channel; y = conv(x, w) + bias, for every convolution\n"
                "init data, in step 0 over the global batch: t = conv(x, v / norm(v)),\n"
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

}  // namespace
}  // namespace bnlab
