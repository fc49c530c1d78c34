#include "strategies/engine/tower_norm.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/error.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/pooling.hpp"
#include "strategies/engine/tower_normalisation.hpp"

namespace bnlab {
namespace {

// Sums over groups of consecutive entries.
std::vector<int64_t> per_group(const std::vector<int64_t>& elements, int64_t group) {
  std::vector<int64_t> sums(elements.size() / static_cast<size_t>(group), 0);
  for (size_t t = 0; t < elements.size(); ++t) {
    sums[t / static_cast<size_t>(group)] += elements[t];
  }
  return sums;
}

at::TensorOptions statistics_options(const Strategy::Context& context) {
  return at::TensorOptions().device(context.device).dtype(statistics_type(context.dtype));
}

at::Tensor first_pair(int64_t channels, const Strategy::Context& context) {  // mean 0, variance 1
  const at::TensorOptions options = statistics_options(context);
  return at::stack({at::zeros({channels}, options), at::ones({channels}, options)});
}

// Pooled moments are known to every rank, and renormalisation feeds the pair into training, so every rank
// needs it in every step; all other pairs wait for the merge.
RunningPair::Holding holding(const Rules& rules, bool replicas) {
  if (rules.remember == Remember::pooled || rules.renorm) {
    return RunningPair::Holding::whole;
  }
  return rules.remember == Remember::tower && replicas ? RunningPair::Holding::replica
                                                       : RunningPair::Holding::shares;
}

PairRule saved_rule(const Rules& rules, const Strategy::Context& context) {
  const bool last_rank = context.replicas && rules.saved_tower < 0;  // one tower per rank
  return {rules.remember, last_rank ? context.statistics.size() - 1 : rules.saved_tower, rules.momentum};
}

PairRule shadow_rule(const Population& population, const Rules& rules) {
  switch (population.kind) {
    case Population::Kind::tower:
      return {Remember::tower, population.tower, rules.momentum};
    case Population::Kind::mean:
      return {Remember::mean, 0, rules.momentum};
    default:
      return {Remember::pooled, 0, rules.momentum};
  }
}

}  // namespace

TowerNorm::TowerNorm(const NormSite& site, const Rules& rules, const Strategy::Context& context)
    : site_(site),
      rules_(rules),
      context_(context),
      saved_(saved_rule(rules, context), holding(rules, context.replicas), context.statistics.rank(),
             first_pair(site.channels, context)) {
  const at::TensorOptions options = statistics_options(context);
  if (rules.affine && !rules.mean_only) {
    weight_ = register_parameter("weight", at::ones({site.channels}, options));
    bias_ = register_parameter("bias", at::zeros({site.channels}, options));
  }
  running_mean_ = register_buffer("running_mean", at::zeros({site.channels}, options));
  if (!rules.mean_only) {
    running_var_ = register_buffer("running_var", at::ones({site.channels}, options));
  }
  for (const Population& population : context.shadows) {
    const PairRule rule = shadow_rule(population, rules);
    shadows_.emplace_back(population,
                          RunningPair(rule,
                                      rule.remember == Remember::pooled ? RunningPair::Holding::whole
                                                                        : RunningPair::Holding::shares,
                                      context.statistics.rank(), first_pair(site.channels, context)));
  }
  nonfinite_ = at::zeros({}, options.dtype(at::kLong));
}

RunningPair& TowerNorm::pair(const Population& population) {
  if (population.kind == Population::Kind::saved) {
    return saved_;
  }
  for (auto& [carried, pair] : shadows_) {
    if (carried.kind == population.kind && carried.tower == population.tower) {
      return pair;
    }
  }
  throw Error(Error::Kind::refused, rules_.strategy + ": this population was not carried during training");
}

void TowerNorm::show(const at::Tensor& pair) {
  running_mean_.copy_(pair[0]);
  if (running_var_.defined()) {
    running_var_.copy_(pair[1]);
  }
}

void TowerNorm::start_from_buffers() {
  const at::Tensor pair =
      at::stack({running_mean_, running_var_.defined() ? running_var_ : at::ones_like(running_mean_)});
  saved_.start_from(pair);
  for (auto& [population, shadow] : shadows_) {
    shadow.start_from(pair);
  }
}

void TowerNorm::collect(const at::Tensor& moments) {
  const at::Tensor all = collected_.defined() ? at::cat({collected_, moments}) : moments;
  collected_ = merge_moments(all, all.size(0));
}

at::Tensor TowerNorm::take_collected() {
  const at::Tensor taken =
      collected_.defined() ? collected_[0]
                           : at::zeros({1 + 2 * site_.channels}, running_mean_.options().dtype(at::kDouble));
  collected_ = at::Tensor();
  return taken;
}

void TowerNorm::check_sizes(const Rules& rules, const std::vector<int64_t>& elements,
                            const Pass& pass) const {
  const bool pooled = rules.normalise_by == NormaliseBy::pooled;
  const auto sets = pooled ? per_group(elements, rules.group(pass.towers)) : elements;
  if (std::find(sets.begin(), sets.end(), 1) != sets.end()) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " +
                                          site_.name + ", strategy " + rules.strategy + ", set of 1)");
  }
}

Sets TowerNorm::sets(const Rules& rules, int64_t positions, const Pass& pass) const {
  const Towers& towers = pass.towers;
  Sets sets;
  sets.offsets = {0};
  for (int64_t t = 0; t < towers.count(); ++t) {
    const int64_t samples = towers.samples(t);
    const int64_t most = rules.virtual_batch > 0 && samples > 0 ? rules.virtual_batch : samples;
    int64_t begin = 0;
    do {  // an empty tower is one empty set
      const int64_t size = std::min(most, samples - begin);
      if (towers.is_local(t)) {
        sets.offsets.push_back(sets.offsets.back() + size * pass.rows_per_sample);
        sets.local_tower.push_back(t - towers.first());
      } else if (t < towers.first()) {
        ++sets.first;
      }
      sets.elements.push_back(size * pass.rows_per_sample * positions);
      begin += size;
    } while (begin < samples);
  }
  return sets;
}

at::Tensor TowerNorm::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  Rules rules = rules_;
  const bool training = pass.mode == Mode::train || pass.mode == Mode::calibrate;
  rules.check(pass.towers, training);
  if (pass.mode == Mode::evaluate_batch) {
    rules.renorm.reset();  // it would bring the running statistics in
  } else if (!training) {
    rules.normalise_by = NormaliseBy::running;
  }
  if (rules.normalise_by == NormaliseBy::running) {
    return normalise_slices(x, residual, weight_, bias_, {0, x.size(0)}, site_.activation,
                            c10::make_intrusive<TowerNormalisation>(*this, rules, pass, Sets{}));
  }
  int64_t positions = 1;  // elements per row and channel
  for (int64_t d = 2; d < x.dim(); ++d) {
    positions *= x.size(d);
  }
  Sets sets = this->sets(rules, positions, pass);
  if (training) {
    check_sizes(rules, sets.elements, pass);
  }
  const kernels::Offsets offsets = sets.offsets;
  return normalise_slices(x, residual, weight_, bias_, offsets, site_.activation,
                          c10::make_intrusive<TowerNormalisation>(*this, rules, pass, std::move(sets)));
}

}  // namespace bnlab
