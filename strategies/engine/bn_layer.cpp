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

#include <optional>

#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/running_pass.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

// Where towers weigh alike, a tower's row travels as if of one value, and its n_t as one channel more: what
// is exchanged alone tells how large the images of other ranks are.
at::Tensor of_equal_weight(const at::Tensor& rows) {
  const Moments r(rows);
  return pack_moments((r.count > 0).to(at::kDouble), at::cat({r.mean, r.count}, 1),
                      at::cat({r.m2 / r.count.clamp_min(1), at::zeros_like(r.count)}, 1));
}

// The same, met: without that channel, and with N / T in the place of every tower's n_t, so that N is the
// count of all.
kernels::PooledRows with_mean_counts(kernels::PooledRows met) {
  const Moments r(met.rows);
  const int64_t channels = r.mean.size(1) - 1;
  const bool sums = met.layout == kernels::PooledLayout::group_sums;
  at::Tensor each = r.mean.narrow(1, channels, 1), mean = r.mean.narrow(1, 0, channels);
  if (met.layout == kernels::PooledLayout::towers) {
    const auto of_group = [&](const at::Tensor& of_towers) {
      return of_towers.reshape({-1, met.group}).sum(1, /*keepdim=*/true);
    };
    each = (of_group(each) / of_group(r.count).clamp_min(1)).expand({-1, met.group}).reshape({-1, 1});
  } else if (sums) {
    each = each / r.count.clamp_min(1);
  }
  if (sums) mean = mean * each;
  met.rows = pack_moments(r.count * each, mean, r.m2.narrow(1, 0, channels) * each);
  return met;
}

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
                          .group = rules_->group(towers_),
                          .merge = rules_->merge,
                          .precision = precision_,
                          .communicator = context.statistics,
                          .host = context.host,
                          .gathered_later = !rules_->equal_weights});
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
    const bool equal = rules_->equal_weights;
    kernels::PooledRows pooled =
        at_site(site_, "forward", [&] { return route_->moments(equal ? of_equal_weight(local) : local, x); });
    if (equal) pooled = with_mean_counts(pooled);
    forward_ = kernels::pooled_forward(pooled, rules_->merge, options, precision_, update_->begin());
    pooled.ranks = nullptr;  // its rows are gathered now
    if (rules_->normalise_ddof > 0)
      unbiased_ = forward_.count / (forward_.count - rules_->normalise_ddof).clamp_min(1);
    if (equal) forward_.count = counts_of_gradients(local);
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
  // Where towers weigh alike: T n_t for the N of a tower's gradients [G, C], T the full towers of its group.
  at::Tensor counts_of_gradients(const at::Tensor& local) const {
    std::vector<int64_t> full;
    for (const int64_t elements : sets_.towers) full.push_back(elements > 0);
    full = sums_of_groups(full, rules_->group(towers_));
    at::Tensor counts = Moments(local).count.clone();
    for (int64_t t = 0; t < counts.size(0); ++t)
      counts[t].mul_(full[static_cast<size_t>((towers_.first() + t) / rules_->group(towers_))]);
    return counts.clamp_min(1).to(precision_).expand_as(forward_.count).contiguous();
  }

  void remember(const MomentsOfPass& moments) {
    at_site(site_, "forward", [&] { update_->remember(moments); });
  }

  std::string site_;
  std::shared_ptr<const Rules> rules_;
  Towers towers_;
  Sets sets_;
  at::ScalarType precision_;  // what statistics are held in
  Communicator& ranks_;
  std::optional<kernels::Renormalisation> renorm_;
  std::unique_ptr<PassUpdate> update_;
  std::unique_ptr<Route> route_;  // where moments are pooled
  at::Tensor unbiased_;           // [G, C], N / (N - 1), where such a variance normalises
  at::Tensor local_mean_;         // [G, C], with Merge::averaged
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
  Sets sets = sets_of(pass.towers, pass.rows_per_sample, positions_of(x), rules_->virtual_batch);
  check_pass(site_.name, *rules_, pass, sets);
  // By the running statistics before this step's update. In an evaluation the batch's own moments normalise
  // alone.
  std::optional<kernels::Renormalisation> renorm;
  if (rules_->renorm && pass.mode != Mode::evaluate_batch) {
    const auto [r, d] = rules_->renorm->limits(pass.step.index);
    renorm = {.running = statistics_->saved().merged(), .r_max = r, .d_max = d};
  }
  auto update = update_of(pass, sets, positions_of(x), rules_, statistics_);
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
