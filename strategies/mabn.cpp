// mabn: moving-average batch normalisation (Yan et al. 2020). Every tower normalises by the mean of E[x^2]
// over its last `window` steps, and the one moment of the gradient that is left in the backward pass is a
// mean over as many; no mean of activations is subtracted, which the centred weights of the convolutions make
// up for. r, a constant for the gradient, corrects towards the tower's own running E[x^2], as in batch
// renormalisation. engine/moving_norm.cpp computes it. The schedule (own moments at first, r from step 1000
// on) and the limit 5 of r are those of the authors' code (megvii-model/MABN).
#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/moving_norm.hpp"
#include "strategies/engine/standardised_convolution.hpp"

namespace bnlab::mabn {

class Mabn : public Strategy {
 public:
  struct Options {
    int64_t window = 16;
    int64_t warmup_steps = 100;
    int64_t renorm_from_step = 1000;
    double r_max = 5;
    bool centred_weights = true;
    double eps = 1e-5;
    std::optional<double> momentum = 0.02;
    bool affine = true;

    void describe(OptionVisitor& option) {
      option("window", window,
             "steps whose moments are averaged: the batch to stand for over a tower's batch")
          .at_least(1)
          .at_most(4096);
      option("warmup_steps", warmup_steps,
             "the step's own moments normalise at first, at least `window` steps")
          .at_least(0);
      option("renorm_from_step", renorm_from_step, "r is 1 up to this step").at_least(0);
      option("r_max", r_max, "largest correction of the scale").at_least(1);
      option("centred_weights", centred_weights,
             "whether the mean of every filter is taken off where a norm follows");
      option("eps", eps, "added to E[x^2] under the root").above(0);
      option("momentum", momentum, "weight of the new value in the running E[x^2]; null: cumulative average")
          .at_least(0)
          .at_most(1);
      option("affine", affine, "whether there are a weight and a bias per channel");
    }
    void check(const RunOutline& run, Problems& problems) const {
      if (run.statistics_per_step && run.passes_per_step > 1) {
        problems.add(
            "name",
            "mabn writes its running statistics in every micro-batch, since they correct the next one; "
            "expected statistics_per \"micro_batch\"");
      }
    }
    bool has_running_statistics() const { return true; }
    bool makes_convolutions() const { return centred_weights; }
  };

  Mabn(const Options& options, const Context& context)
      : Strategy(context), options_(options), statistics_(context.statistics) {
    Rules rules;
    rules.strategy = "mabn";
    rules.remember = Remember::mean;
    rules.about_zero = true;
    rules.ddof = 0;
    rules.eps = options.eps;
    rules.momentum = options.momentum;
    rules.affine = options.affine;
    rules_ = std::make_shared<const Rules>(rules);
  }

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    const kernels::MovingOptions options{.eps = options_.eps,
                                         .warmup_steps = options_.warmup_steps,
                                         .renorm_from_step = options_.renorm_from_step,
                                         .r_max = options_.r_max};
    const NormSite without_numbers{.name = site.name, .affine = site.affine};  // mabn has its own momentum
    auto layer = std::make_shared<MovingNorm>(site, rules_at(without_numbers, rules_), options,
                                              options_.window, context_);
    statistics_.add(layer->statistics(), layer->state());
    return layer;
  }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    if (!site.norm_follows || !options_.centred_weights) return Strategy::conv(site);
    const auto options = at::TensorOptions().device(context_.device).dtype(context_.dtype);
    return std::make_shared<StandardisedConvolution>(site, initial_weights(site, context_.seed).to(options),
                                                     WeightRule::centred, /*eps=*/0);
  }

  std::string why_not_alone() const override {
    return "it centres the filters of the convolutions before its sites, and goes on from moments of past "
           "steps, which no buffer of a layer holds";
  }

  RunningStatistics* running_statistics() override { return &statistics_; }
  StepWork work(const Step& step) const override {
    return {.replayable = !context_.replicas, .sets_up = step.index == 0};
  }

 private:
  Options options_;
  std::shared_ptr<const Rules> rules_;
  MovingStatistics statistics_;
};

const Registered<Strategy> entry{
    {.name = "mabn",
     .summary = "moments of the last steps normalise every tower, forward and backward; nothing is exchanged",
     .source = "Yan et al. 2020 (MABN, ICLR)",
     .formula =
         "X = mean over the last `window` steps of E[x^2] in the tower; r = clip(sqrt(X + eps) / "
         "sqrt(running + eps), 1/r_max, r_max)\n"
         "z = x / sqrt(X + eps); y = gamma r z + beta; with g = gamma r dy and P the mean over as many "
         "steps of E[g z]: dx = (g - z P) / sqrt(X + eps)\n"
         "convolutions: w = v - mean of v per output channel, where a norm follows\n"
         "evaluation: y = gamma x / sqrt(running_var + eps) + beta, running_var the mean over towers of "
         "the running X",
     .exchanges = "none",
     .use = "when a tower holds few samples and nothing may be exchanged",
     .limits =
         "the first steps are those of a small batch: warmup_steps and renorm_from_step are made for long "
         "trainings; of accumulated micro-batches each counts as a step, and statistics_per \"step\" is "
         "refused"},
    make<Strategy, Mabn>};

}  // namespace bnlab::mabn
