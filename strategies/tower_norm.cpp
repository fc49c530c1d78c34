#include "strategies/tower_norm.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/error.hpp"
#include "strategies/normalisation.hpp"
#include "strategies/pooling.hpp"

namespace bnlab {

void Rules::check(const Towers& towers) const {
  if (remember == Remember::tower && saved_tower >= towers.count()) {
    throw Error(Error::Kind::refused, strategy + ": tower " + std::to_string(saved_tower) +
                                          " cannot be saved, the towers are 0 to " +
                                          std::to_string(towers.count() - 1));
  }
  if (towers.count() % group(towers) != 0) {
    throw Error(Error::Kind::refused, strategy + ": group_size " + std::to_string(group_size) +
                                          " does not divide the " + std::to_string(towers.count()) +
                                          " towers");
  }
}

PairUpdate pair_update(const Rules& rules, const std::vector<int64_t>& elements, int64_t& updates) {
  PairUpdate update;
  update.weights.assign(elements.size(), 0.0);
  const auto next_weight = [&] {
    return rules.momentum ? (++updates, *rules.momentum) : 1.0 / static_cast<double>(++updates);
  };
  const auto is_full = [](int64_t n) { return n > 0; };
  switch (rules.remember) {
    case Remember::nothing:
      break;
    case Remember::tower: {
      const auto tower = static_cast<size_t>(rules.saved_tower);
      if (is_full(elements[tower])) {
        update.weights[tower] = next_weight();
        update.decay = 1 - update.weights[tower];
      }
      break;
    }
    case Remember::every:
      for (size_t t = 0; t < elements.size(); ++t) {
        if (is_full(elements[t])) {
          const double a = next_weight();
          for (double& earlier : update.weights) {
            earlier *= 1 - a;
          }
          update.weights[t] = a;
          update.decay *= 1 - a;
        }
      }
      break;
    case Remember::mean:
    case Remember::pooled: {  // one update with the mean over the sets that are not empty
      const auto full = std::count_if(elements.begin(), elements.end(), is_full);
      if (full > 0) {
        const double a = next_weight();
        for (size_t t = 0; t < elements.size(); ++t) {
          update.weights[t] = is_full(elements[t]) ? a / static_cast<double>(full) : 0.0;
        }
        update.decay = 1 - a;
      }
      break;
    }
  }
  return update;
}

namespace {

// Sums of `elements` over groups of consecutive towers.
std::vector<int64_t> per_group(const std::vector<int64_t>& elements, int64_t group) {
  std::vector<int64_t> sums(elements.size() / static_cast<size_t>(group), 0);
  for (size_t t = 0; t < elements.size(); ++t) {
    sums[t / static_cast<size_t>(group)] += elements[t];
  }
  return sums;
}

// [R, 2, C]: mean and unbiased variance.
at::Tensor pair_rows(const at::Tensor& mean, const at::Tensor& m2, const at::Tensor& count) {
  return at::stack({mean, m2 / (count - 1).clamp_min(1)}, 1);
}

}  // namespace

// From moments to coefficients by the rules of one layer, and back.
class TowerNormalisation : public Normalisation {
 public:
  TowerNormalisation(TowerNorm& layer, const Rules& rules, std::vector<int64_t> elements)
      : layer_(layer), rules_(rules), towers_(layer.pass_.towers), elements_(std::move(elements)) {}

  bool needs_moments() const override { return rules_.normalise_by != NormaliseBy::running; }
  at::Tensor sums_mean() const override { return mean_; }

  ForwardCoefficients forward(const at::Tensor& moments, const at::Tensor& weight,
                              const at::Tensor& bias) override {
    const at::TensorOptions statistics = layer_.running_mean_.options();
    if (!needs_moments()) {
      mean_ = layer_.running_mean_.unsqueeze(0);
      invstd_ = (layer_.running_var_.unsqueeze(0) + rules_.eps).rsqrt();
    } else {
      const at::Tensor var = take_moments(moments);  // sets mean_ and count_, in float64
      invstd_ = (var + rules_.eps).rsqrt().to(statistics.dtype());
      mean_ = mean_.to(statistics.dtype());
    }
    ForwardCoefficients k;
    k.mean = mean_;
    k.scale = weight.defined() ? invstd_ * weight : invstd_;
    k.shift = bias.defined() ? bias.unsqueeze(0).expand_as(k.scale) : at::zeros_like(k.scale);
    return k;
  }

  // dx = gamma s (g - A/N - (x - m) s^2 B/N), A = sum g, B = sum g (x - m) over the set.
  BackwardCoefficients backward(const at::Tensor& sums, const at::Tensor& weight) override {
    BackwardCoefficients k;
    const at::Tensor own_a = sums.select(1, 0), own_b = sums.select(1, 1);
    k.dbias = own_a.sum(0);
    k.dweight = (invstd_ * own_b).sum(0);
    k.a = weight.defined() ? invstd_ * weight : invstd_;
    k.mean = gradient_mean_.defined() ? gradient_mean_ : mean_;
    if (rules_.gradient == Gradient::stopped || !needs_moments()) {
      k.b = k.c = at::zeros_like(k.a);
      return k;
    }
    at::Tensor a = own_a, b = own_b;
    if (rules_.normalise_by == NormaliseBy::pooled && rules_.gradient == Gradient::full) {
      const int64_t group = rules_.group(towers_);
      const at::Tensor pooled = pool_sums(sums, towers_, group, layer_.communicator_);
      a = rows_of_local_towers(pooled.select(1, 0), towers_, group);
      b = rows_of_local_towers(pooled.select(1, 1), towers_, group);
    }
    const at::Tensor per_element = k.a / count_.to(k.a.scalar_type());
    k.c = -per_element * a;
    k.b = -per_element * b * invstd_.square();
    return k;
  }

 private:
  // Sets mean_ and count_ of every local tower's set; returns the biased variance that normalises it.
  at::Tensor take_moments(const at::Tensor& moments) {
    const int64_t channels = (moments.size(1) - 1) / 2;
    const at::Tensor own_count = moments.narrow(1, 0, 1);
    const at::Tensor own_mean = moments.narrow(1, 1, channels);
    const at::Tensor own_m2 = moments.narrow(1, 1 + channels, channels);
    if (rules_.normalise_by == NormaliseBy::own) {
      remember_own(moments, own_count, own_mean, own_m2);
      count_ = own_count.clamp_min(1);
      mean_ = own_mean;
      return own_m2 / count_;
    }
    const int64_t group = rules_.group(towers_);
    const Pooled pooled = pool_moments(moments, towers_, group, layer_.communicator_);
    const bool averaged = rules_.variance == Variance::averaged;
    const at::Tensor& m2 = averaged ? pooled.within : pooled.m2;
    remember_groups(pair_rows(pooled.mean, m2, pooled.count), group);
    count_ = rows_of_local_towers(pooled.count, towers_, group).clamp_min(1);
    mean_ = rows_of_local_towers(pooled.mean, towers_, group);
    if (averaged) {  // the exact derivative of that forward is about the tower's own mean
      gradient_mean_ = own_mean.to(layer_.running_mean_.scalar_type());
    }
    return rows_of_local_towers(m2, towers_, group) / count_;
  }

  void remember_own(const at::Tensor& moments, const at::Tensor& count, const at::Tensor& mean,
                    const at::Tensor& m2) {
    if (rules_.remember == Remember::pooled) {
      const Pooled pooled = pool_moments(moments, towers_, towers_.count(), layer_.communicator_);
      remember_groups(pair_rows(pooled.mean, pooled.m2, pooled.count), towers_.count());
    } else if (rules_.remember != Remember::nothing) {
      const PairUpdate update = pair_update(rules_, elements_, layer_.updates_);
      const auto first = update.weights.begin() + towers_.first();
      layer_.remember(pair_rows(mean, m2, count), update.decay, {first, first + towers_.per_rank()});
    }
  }

  void remember_groups(const at::Tensor& rows, int64_t group) {
    if (rules_.remember != Remember::nothing) {
      const PairUpdate update = pair_update(rules_, per_group(elements_, group), layer_.updates_);
      layer_.remember(rows, update.decay, update.weights);
    }
  }

  TowerNorm& layer_;
  Rules rules_;
  Towers towers_;
  std::vector<int64_t> elements_;  // [towers]
  at::Tensor mean_, invstd_;       // [S, C], statistics' precision
  at::Tensor gradient_mean_;       // where it differs from mean_
  at::Tensor count_;               // [S, 1] float64
};

TowerNorm::TowerNorm(const NormSite& site, const Rules& rules, const Pass& pass, Communicator& communicator,
                     const at::TensorOptions& statistics)
    : site_(site), rules_(rules), pass_(pass), communicator_(communicator) {
  if (rules.affine) {
    weight_ = register_parameter("weight", at::ones({site.channels}, statistics));
    bias_ = register_parameter("bias", at::zeros({site.channels}, statistics));
  }
  running_mean_ = register_buffer("running_mean", at::zeros({site.channels}, statistics));
  running_var_ = register_buffer("running_var", at::ones({site.channels}, statistics));
  nonfinite_ = at::zeros({}, statistics.dtype(at::kLong));
  if (rules.remember != Remember::pooled) {
    set_saved_pair(at::stack({running_mean_, running_var_}));
  }
}

void TowerNorm::set_saved_pair(const at::Tensor& pair) {
  running_mean_.copy_(pair[0]);
  running_var_.copy_(pair[1]);
  if (rules_.remember != Remember::pooled) {
    share_ = communicator_.rank() == 0 ? pair.clone() : at::zeros_like(pair);
  }
}

void TowerNorm::check_sizes(const std::vector<int64_t>& elements) const {
  const bool pooled = rules_.normalise_by == NormaliseBy::pooled;
  const auto sets = pooled ? per_group(elements, rules_.group(pass_.towers)) : elements;
  if (rules_.normalise_by != NormaliseBy::running && std::find(sets.begin(), sets.end(), 1) != sets.end()) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " +
                                          site_.name + ", strategy " + rules_.strategy + ", set of 1)");
  }
}

at::Tensor TowerNorm::forward(at::Tensor x, at::Tensor residual) {
  Rules rules = rules_;
  rules.check(pass_.towers);
  if (pass_.mode != Mode::train) {
    rules.remember = Remember::nothing;
  }
  if (pass_.mode == Mode::evaluate_saved) {
    rules.normalise_by = NormaliseBy::running;
  }
  int64_t positions = pass_.rows_per_sample;  // elements per sample and channel
  for (int64_t d = 2; d < x.dim(); ++d) {
    positions *= x.size(d);
  }
  std::vector<int64_t> elements = pass_.towers.all_samples();
  for (int64_t& n : elements) {
    n *= positions;
  }
  kernels::Offsets offsets{0, x.size(0)};
  if (rules.normalise_by != NormaliseBy::running) {
    check_sizes(elements);
    offsets = pass_.towers.local_offsets();
    for (int64_t& row : offsets) {
      row *= pass_.rows_per_sample;
    }
  }
  return normalise_slices(x, residual, weight_, bias_, offsets, site_.activation,
                          c10::make_intrusive<TowerNormalisation>(*this, rules, std::move(elements)));
}

void TowerNorm::remember(const at::Tensor& rows, double decay, const std::vector<double>& weights) {
  const at::NoGradGuard no_grad;
  at::Tensor pair = share_.defined() ? share_ : at::stack({running_mean_, running_var_});
  if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) {
    pair.mul_(decay);
  } else {
    if (weights_ != weights) {  // constant but for cumulative averages and changing sizes
      weights_ = weights;
      weights_tensor_ = at::tensor(weights, at::kDouble).to(pair.device()).view({-1, 1, 1});
    }
    // Rows without weight may hold anything, so they are left out rather than multiplied by 0.
    const at::Tensor rounded = rows.to(pair.scalar_type()).masked_fill(weights_tensor_ == 0, 0);
    const at::Tensor finite = rounded.sum(0).isfinite().all(0, /*keepdim=*/true);  // [1, C]
    const at::Tensor updated = pair * decay + (rounded * weights_tensor_).sum(0).to(pair.scalar_type());
    nonfinite_ += finite.logical_not().sum();
    pair = at::where(finite, updated, pair);
  }
  if (share_.defined()) {
    share_ = pair;
  } else {
    running_mean_.copy_(pair[0]);
    running_var_.copy_(pair[1]);
  }
}

}  // namespace bnlab
