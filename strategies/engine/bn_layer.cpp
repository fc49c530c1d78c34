// What a strategy of the BN family computes at a site, by its Rules, with s = 1 / sqrt(v + eps) over the set
// (a tower, a group of towers, a virtual batch):
//
//   forward    local moments -> exchange, where they are pooled -> coefficients ->
//              y = gamma ((x - m) s r + d) + beta, r = 1 and d = 0 but for batch renormalisation;
//              the running statistics are updated on the way, or later (PassUpdate)
//   backward   local sums of g and g (x - m) -> exchange, where they are pooled -> coefficients ->
//              dx = gamma r s (g - A/N - (x - m) s^2 B/N), A = sum g, B = sum g (x - m) over the set
//
// LibTorch enters by apply_norm (norm_function.hpp), an autograd operation that calls forward and backward of
// the BatchPass below. The sweeps over the activations and the steps to coefficients are operations of
// kernels/; where nothing is exchanged between a sweep and its coefficients, they are one
// (kernels/kernels.hpp). On a GPU most sites take two kernels forward and two backward, or three and
// three beside their exchanges; `bnlab explain` counts them.
#include "strategies/engine/bn_layer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/running_pass.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

// Where towers weigh alike, N / T values stand for a tower's n_t, and T n_t for the N of its gradients: N and
// T of the values and the towers with any in its group.
class EqualWeights {
 public:
  // elements: of every tower, per channel. None on even towers, where all stays as it is.
  static std::optional<EqualWeights> of(const Towers& towers, const std::vector<int64_t>& elements,
                                        int64_t group) {
    EqualWeights weights;
    for (int64_t t = towers.first(); t < towers.first() + towers.per_rank(); ++t) {
      const auto begin = elements.begin() + t / group * group;
      const auto values = static_cast<double>(std::accumulate(begin, begin + group, int64_t{0}));
      const auto full =
          static_cast<double>(std::count_if(begin, begin + group, [](int64_t n) { return n > 0; }));
      const auto own = static_cast<double>(elements[static_cast<size_t>(t)]);
      weights.factors_.push_back(own > 0 ? values / full / own : 1);
      weights.counts_.push_back(std::max(1.0, full * own));
    }
    const bool is_even = std::ranges::all_of(weights.factors_, [](double factor) { return factor == 1; });
    return is_even ? std::nullopt : std::optional(weights);
  }

  // rows: moments of this rank's towers [G, 1 + 2C].
  at::Tensor weighted(const at::Tensor& rows) const {
    at::Tensor weighted = rows.clone();
    const Moments parts(weighted);
    for (size_t t = 0; t < factors_.size(); ++t) {
      parts.count[static_cast<int64_t>(t)].mul_(factors_[t]);
      parts.m2[static_cast<int64_t>(t)].mul_(factors_[t]);
    }
    return weighted;
  }

  // like [G, C]
  at::Tensor counts(const at::Tensor& like) const {
    at::Tensor counts = at::empty_like(like);
    for (size_t t = 0; t < counts_.size(); ++t) counts[static_cast<int64_t>(t)].fill_(counts_[t]);
    return counts;
  }

 private:
  std::vector<double> factors_, counts_;  // of this rank's towers
};

// Normalises by the moments of the batch.
class BatchPass : public NormPass {
 public:
  BatchPass(const std::string& site, std::shared_ptr<const Rules> rules, const Pass& pass, Sets sets,
            at::ScalarType precision, const Strategy::Context& context,
            std::optional<kernels::Renormalisation> renorm, std::unique_ptr<PassUpdate> update)
      : NormPass(sets.offsets),
        site_(site),
        rules_(std::move(rules)),
        towers_(pass.towers),
        sets_(std::move(sets)),
        precision_(precision),
        ranks_(context.statistics),
        renorm_(std::move(renorm)),
        update_(std::move(update)) {
    if (rules_->pools()) {
      route_ = route_taken(rules_->route, context.statistics.size())
                   .make({.towers = towers_,
                          .rows_per_sample = pass.rows_per_sample,
                          .elements = sets_.towers,
                          .group = rules_->group(towers_),
                          .merge = rules_->merge,
                          .precision = precision_,
                          .communicator = context.statistics,
                          .host = context.host});
      if (rules_->equal_weights) equal_ = EqualWeights::of(towers_, sets_.towers, rules_->group(towers_));
    }
  }

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const kernels::NormOptions options{.eps = rules_->eps,
                                       .ddof = rules_->normalise_ddof,
                                       .mean_only = rules_->mean_only,
                                       .weight = weight,
                                       .bias = bias,
                                       .renorm = renorm_};
    if (!route_) {
      const kernels::LocalForward made = kernels::local_forward(x, offsets(), options, update_->begin());
      forward_ = made.coefficients;
      remember({.local = made.rows});
      return forward_;
    }
    const at::Tensor local = kernels::moments(x, offsets());  // [G, 1 + 2C]
    const at::Tensor sent = equal_ ? equal_->weighted(local) : local;
    const kernels::PooledRows pooled = at_site(site_, "forward", [&] { return route_->moments(sent, x); });
    forward_ = kernels::pooled_forward(pooled, rules_->merge, options, precision_, update_->begin());
    if (rules_->normalise_ddof > 0)
      unbiased_ = forward_.count / (forward_.count - rules_->normalise_ddof).clamp_min(1);
    if (equal_) forward_.count = equal_->counts(forward_.count);
    if (rules_->merge == Merge::averaged) local_mean_ = Moments(local).mean.to(precision_);
    remember({.local = local, .pooled = &pooled});
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    kernels::BackwardCoefficients k;
    if (rules_->gradient != Gradient::full || !route_) {
      const bool through_moments = rules_->gradient != Gradient::stopped;
      k = kernels::local_backward(incoming, forward_, through_moments, rules_->mean_only, weight);
    } else {
      const at::Tensor local = incoming.sums(forward_.mean);  // [G, 2, C]
      const kernels::PooledRows pooled =
          at_site(site_, "backward", [&] { return route_->sums(local, incoming); });
      k = kernels::pooled_backward(forward_, local, pooled, rules_->mean_only, weight);
    }
    if (unbiased_.defined()) k.b = k.b * unbiased_;
    // With Merge::averaged the exact derivative of the forward pass is about each tower's own mean.
    if (local_mean_.defined()) k.mean = local_mean_;
    return k;
  }

  NormFormula formula(const at::Tensor& x) const override {
    if (rules_->renorm) refuse_second_derivative(rules_->strategy, site_);
    return batch_formula(x, *rules_, offsets(), forward_, unbiased_, [this](const at::Tensor& parts) {
      return route_ ? sum_over_groups(parts, towers_, rules_->group(towers_), ranks_, site_) : parts;
    });
  }

  bool needs_outputs() const override {
    return local_mean_.defined() || (route_ && about_route(rules_->route).moves_rows);
  }

 private:
  void remember(const MomentsOfPass& moments) {
    at_site(site_, "forward", [&] { update_->remember(moments); });
  }

  std::string site_;
  std::shared_ptr<const Rules> rules_;
  Towers towers_;
  Sets sets_;
  at::ScalarType precision_;  // of the statistics
  Communicator& ranks_;
  std::optional<kernels::Renormalisation> renorm_;
  std::unique_ptr<PassUpdate> update_;
  std::unique_ptr<Route> route_;  // where moments are pooled
  std::optional<EqualWeights> equal_;
  at::Tensor unbiased_;    // [G, C], N / (N - 1), where such a variance normalises
  at::Tensor local_mean_;  // [G, C], with Merge::averaged
};

}  // namespace

BnLayer::BnLayer(const NormSite& site, std::shared_ptr<const Rules> rules, const Strategy::Context& context)
    : site_(site), rules_(std::move(rules)), context_(context) {
  const auto options = at::TensorOptions().device(context.device).dtype(statistics_type(context.dtype));
  if (rules_->affine && !rules_->mean_only) {
    register_parameter("weight", at::ones({site.channels}, options));
    register_parameter("bias", at::zeros({site.channels}, options));
  }
  const at::Tensor mean = register_buffer("running_mean", at::zeros({site.channels}, options));
  const at::Tensor var =
      rules_->mean_only ? at::Tensor() : register_buffer("running_var", at::ones({site.channels}, options));
  statistics_ = std::make_shared<SiteStatistics>(rules_, context, mean, var);
}

at::Tensor BnLayer::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  const bool by_batch =
      pass.mode == Mode::train || pass.mode == Mode::calibrate || pass.mode == Mode::evaluate_batch;
  return apply_norm(x, residual, parameter("weight"), parameter("bias"), site_.activation,
                    by_batch ? batch_pass(x, pass) : running_pass(x, pass, rules_, statistics_), pass);
}

c10::intrusive_ptr<NormPass> BnLayer::batch_pass(const at::Tensor& x, const Pass& pass) {
  Sets sets = sets_of(pass.towers, pass.rows_per_sample, positions(x), rules_->virtual_batch);
  check_pass(site_.name, *rules_, pass, sets);
  // By the running statistics before this step's update. In an evaluation the batch's own moments normalise
  // alone.
  std::optional<kernels::Renormalisation> renorm;
  if (rules_->renorm && pass.mode != Mode::evaluate_batch) {
    const auto [r, d] = rules_->renorm->limits(pass.step.index);
    renorm = {.running = statistics_->saved().merged(), .r_max = r, .d_max = d};
  }
  auto update = update_of(pass, sets, positions(x), rules_, statistics_);
  return c10::make_intrusive<BatchPass>(site_.name, rules_, pass, std::move(sets),
                                        statistics_type(x.scalar_type()), context_, std::move(renorm),
                                        std::move(update));
}

// The registry of a module's buffers cannot be written: they are where the statistics have them.
void BnLayer::replace(const std::string& name, const at::Tensor& tensor) {
  if (name == "running_mean")
    statistics_->set_buffers(tensor, statistics_->var());
  else if (name == "running_var")
    statistics_->set_buffers(statistics_->mean(), tensor);
  else
    WritableLayer::replace(name, tensor);
}

// Passes that are under way keep the rules that they began with.
void BnLayer::set_eps(double eps) {
  Rules rules = *rules_;
  rules.eps = eps;
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

void BnLayer::set_momentum(std::optional<double> momentum) {
  Rules rules = *rules_;
  rules.momentum = momentum;
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

}  // namespace bnlab
