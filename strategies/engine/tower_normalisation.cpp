#include "strategies/engine/tower_normalisation.hpp"

#include <torch/types.h>

#include <numeric>

#include "harness/error.hpp"

namespace bnlab {
namespace {

std::vector<int64_t> elements_of_towers(const Towers& towers, const Sets& sets) {
  std::vector<int64_t> elements = towers.all_samples();
  int64_t samples = towers.total_samples(), all = 0;
  for (const int64_t n : sets.elements) {
    all += n;
  }
  for (int64_t& n : elements) {
    n = samples == 0 ? 0 : n * (all / samples);
  }
  return elements;
}

// An exchange that fails says which site waited for it.
template <class Exchange>
at::Tensor at_site(const std::string& site, const Exchange& exchange) {
  try {
    return exchange();
  } catch (const Error& e) {
    throw Error(e.kind(), "site " + site + ": " + e.what());
  }
}

}  // namespace

TowerNormalisation::TowerNormalisation(TowerNorm& layer, const Rules& rules, const Pass& pass, Sets sets)
    : layer_(layer), rules_(rules), pass_(pass), sets_(std::move(sets)), training_(pass.mode == Mode::train) {
  if (rules.normalise_by != NormaliseBy::running) {
    towers_ = elements_of_towers(pass_.towers, sets_);
  }
}

ForwardCoefficients TowerNormalisation::forward(const at::Tensor& x, const kernels::Offsets& offsets,
                                                const at::Tensor& weight, const at::Tensor& bias) {
  const at::TensorOptions statistics = layer_.running_mean_.options();
  if (rules_.normalise_by == NormaliseBy::running) {
    mean_ = layer_.running_mean_.unsqueeze(0).clone();  // backward may come after the pair has changed
    invstd_ =
        rules_.mean_only ? at::ones_like(mean_) : (layer_.running_var_.unsqueeze(0) + rules_.eps).rsqrt();
    return affine_coefficients(mean_, invstd_, weight, bias);
  }
  const at::Tensor var = take_moments(x, offsets);
  mean_ = mean_.to(statistics.dtype());
  invstd_ = rules_.mean_only ? at::ones_like(mean_) : (var + rules_.eps).rsqrt().to(statistics.dtype());
  if (!r_.defined()) {
    return affine_coefficients(mean_, invstd_, weight, bias);
  }
  ForwardCoefficients k = affine_coefficients(mean_, invstd_ * r_, weight, bias);
  k.shift = k.shift + (weight.defined() ? d_ * weight : d_);
  return k;
}

BackwardCoefficients TowerNormalisation::backward(const Incoming& incoming, const at::Tensor& weight) {
  const at::Tensor sums = incoming.sums(mean_);
  const at::Tensor own_a = sums.select(1, 0), own_b = sums.select(1, 1);
  const at::Tensor factor = r_.defined() ? invstd_ * r_ : invstd_;
  BackwardCoefficients k;
  k.dbias = own_a.sum(0);
  k.dweight = (factor * own_b).sum(0);
  if (d_.defined()) {
    k.dweight += (d_ * own_a).sum(0);
  }
  k.a = weight.defined() ? factor * weight : factor;
  k.mean = gradient_mean_.defined() ? gradient_mean_ : mean_;
  if (rules_.gradient == Gradient::stopped || rules_.normalise_by == NormaliseBy::running) {
    k.b = k.c = at::zeros_like(k.a);
    return k;
  }
  at::Tensor a = own_a, b = own_b;
  if (pool_ && rules_.gradient == Gradient::full) {
    const at::Tensor pooled =
        at_site(layer_.site_.name, [&] { return pool_->sums(sums, incoming, group_means_); });
    a = pool_->local_rows(pooled.select(1, 0));
    b = pool_->local_rows(pooled.select(1, 1));
  }
  const at::Tensor per_element = k.a / count_.to(k.a.scalar_type());
  k.c = -per_element * a;
  k.b = rules_.mean_only ? at::zeros_like(k.a) : -per_element * b * invstd_.square();
  return k;
}

at::Tensor TowerNormalisation::take_moments(const at::Tensor& x, const kernels::Offsets& offsets) {
  const at::Tensor own = kernels::moments(x, offsets);
  if (pass_.mode == Mode::calibrate) {
    layer_.collect(own);
  }
  at::Tensor pooled;  // [K, 1 + 2C]
  if (rules_.normalise_by == NormaliseBy::pooled) {
    const at::ScalarType statistics = layer_.running_mean_.scalar_type();
    pool_.emplace(rules_, pass_, towers_, layer_.context_);
    pooled = at_site(layer_.site_.name, [&] { return pool_->moments(own, x, statistics); });
    group_means_ = Moments(pooled).mean.to(statistics);
  }
  at::Tensor m2;
  if (pool_) {
    const Moments groups(pooled);
    count_ = pool_->local_rows(groups.count).clamp_min(1);
    mean_ = pool_->local_rows(groups.mean);
    m2 = pool_->local_rows(groups.m2);
    if (rules_.merge == Merge::averaged) {  // the exact derivative of that forward is about the own mean
      gradient_mean_ = Moments(own).mean.to(layer_.running_mean_.scalar_type());
    }
  } else {
    const Moments sets(own);
    count_ = sets.count.clamp_min(1);
    mean_ = sets.mean;
    m2 = sets.m2;
  }
  const at::Tensor var = m2 / count_;
  if (rules_.renorm) {  // by the running statistics before this step's update
    const Renorm::Limits limits = rules_.renorm->limits(pass_.step.index);
    const at::Tensor running = layer_.saved_.pair().to(at::kDouble);
    const at::Tensor deviation = (running[1] + rules_.eps).sqrt();
    const auto statistics = layer_.running_mean_.scalar_type();
    r_ = ((var + rules_.eps).sqrt() / deviation).clamp(1 / limits.r, limits.r).to(statistics);
    d_ = ((mean_ - running[0]) / deviation).clamp(-limits.d, limits.d).to(statistics);
  }
  if (training_) {
    remember(own, pooled);
  }
  return var;
}

// What each pair takes of this step: rows of the sets that every rank knows, or of this rank's own.
void TowerNormalisation::remember(const at::Tensor& own, const at::Tensor& pooled) {
  const at::NoGradGuard no_grad;
  const auto total = [&] { return std::accumulate(towers_.begin(), towers_.end(), int64_t{0}); };
  at::Tensor nonfinite;
  if (pooled.defined()) {
    nonfinite = layer_.saved_.update(Moments(pooled).pair_rows(), pool_->elements_of_groups(), 0);
  } else if (rules_.remember == Remember::pooled) {
    const at::Tensor all = all_towers(own, Purpose::statistics);
    nonfinite = layer_.saved_.update(Moments(merge_moments(all, all.size(0))).pair_rows(), {total()}, 0);
  } else if (layer_.saved_.holding() == RunningPair::Holding::whole) {
    nonfinite = layer_.saved_.update(Moments(all_towers(own, Purpose::statistics)).pair_rows(), towers_, 0);
  } else {
    nonfinite = layer_.saved_.update(Moments(own).pair_rows(), sets_.elements, sets_.first);
  }
  if (nonfinite.defined()) {
    layer_.nonfinite_ += nonfinite;
  }
  for (auto& [population, shadow] : layer_.shadows_) {
    if (population.kind == Population::Kind::pooled) {
      const at::Tensor all = all_towers(own, Purpose::evaluation);
      shadow.update(Moments(merge_moments(all, all.size(0))).pair_rows(), {total()}, 0);
    } else {
      shadow.update(Moments(own_towers(own)).pair_rows(), towers_, pass_.towers.first());
    }
  }
}

at::Tensor TowerNormalisation::own_towers(const at::Tensor& own) const {
  return rules_.virtual_batch == 0 ? own : merge_moments(own, sets_.local_tower, pass_.towers.per_rank());
}

at::Tensor TowerNormalisation::all_towers(const at::Tensor& own, Purpose purpose) {
  if (!all_towers_.defined()) {
    all_towers_ = at_site(layer_.site_.name, [&] {
      return layer_.context_.statistics.all_gather(own_towers(own), purpose).flatten(0, 1);
    });
  }
  return all_towers_;
}

}  // namespace bnlab
