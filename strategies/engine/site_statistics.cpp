#include "strategies/engine/site_statistics.hpp"

#include <torch/types.h>

#include <numeric>

#include "harness/error.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab {
namespace {

using Holding = RunningPair::Holding;

at::Tensor pair_of(const at::Tensor& mean, const at::Tensor& var) {
  return at::stack({mean, var.defined() ? var : at::ones_like(mean)});
}

// Pooled moments are known to every rank, and renormalisation feeds the pair into training, so every rank
// needs it in every step; all other pairs wait for the merge.
Holding saved_holding(const Rules& rules, bool replicas) {
  if (rules.remember == Remember::pooled || rules.renorm) {
    return Holding::whole;
  }
  return rules.remember == Remember::tower && replicas ? Holding::replica : Holding::shares;
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

SiteStatistics::SiteStatistics(const Rules& rules, const Strategy::Context& context, at::Tensor mean,
                               at::Tensor var)
    : rules_(rules),
      communicator_(context.statistics),
      mean_(std::move(mean)),
      var_(std::move(var)),
      saved_(saved_rule(rules, context), saved_holding(rules, context.replicas), communicator_.rank(),
             pair_of(mean_, var_)),
      nonfinite_(at::zeros({}, mean_.options().dtype(at::kLong))) {
  for (const Population& population : context.shadows) {
    const PairRule rule = shadow_rule(population, rules);
    const Holding holding = rule.remember == Remember::pooled ? Holding::whole : Holding::shares;
    shadows_.emplace_back(population, RunningPair(rule, holding, communicator_.rank(), pair_of(mean_, var_)));
  }
}

RunningPair& SiteStatistics::pair(const Population& population) {
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

void SiteStatistics::show(const at::Tensor& pair) {
  mean_.copy_(pair[0]);
  if (var_.defined()) {
    var_.copy_(pair[1]);
  }
}

void SiteStatistics::start_from_buffers() {
  const at::Tensor pair = pair_of(mean_, var_);
  saved_.start_from(pair);
  for (auto& [population, shadow] : shadows_) {
    shadow.start_from(pair);
  }
}

bool SiteStatistics::saved_by_normalising() const {
  return rules_.normalise_by == NormaliseBy::pooled ||
         (rules_.remember != Remember::pooled && saved_.holding() != Holding::whole);
}

at::Tensor SiteStatistics::counted_once() const {
  const bool whole = saved_.holding() == Holding::whole;
  return whole && communicator_.rank() != 0 ? at::Tensor() : nonfinite_;
}

std::optional<kernels::RunningUpdate> SiteStatistics::begin_step(const Sets& sets, const Towers& towers) {
  const at::NoGradGuard no_grad;
  if (!saved_by_normalising()) {
    return std::nullopt;
  }
  if (rules_.normalise_by == NormaliseBy::pooled) {
    const std::vector<int64_t> elements = sums_of_groups(sets.towers, rules_.group(towers));
    return saved_.begin_update(static_cast<int64_t>(elements.size()), elements, 0, counted_once());
  }
  const auto rows = static_cast<int64_t>(sets.offsets.size()) - 1;
  return saved_.begin_update(rows, sets.elements, sets.first, counted_once());
}

void SiteStatistics::remember(const at::Tensor& own, const Sets& sets, const Towers& towers) {
  const at::NoGradGuard no_grad;
  at::Tensor of_towers;  // [G, 1 + 2C]
  const auto own_towers = [&]() -> const at::Tensor& {
    if (!of_towers.defined()) {
      of_towers = rules_.virtual_batch == 0 ? own : merge_moments(own, sets.local_tower, towers.per_rank());
    }
    return of_towers;
  };
  at::Tensor all;  // [T, 1 + 2C]
  const auto all_towers = [&](Purpose purpose) -> const at::Tensor& {
    if (!all.defined()) {
      all = communicator_.all_gather(own_towers(), purpose).flatten(0, 1);
    }
    return all;
  };
  const auto merged = [&](Purpose purpose) {
    return kernels::merge_moments(all_towers(purpose), towers.count());
  };
  const std::vector<int64_t> total = {std::accumulate(sets.towers.begin(), sets.towers.end(), int64_t{0})};

  if (!saved_by_normalising()) {
    if (rules_.remember == Remember::pooled) {
      saved_.update(merged(Purpose::statistics), total, 0, counted_once());
    } else {
      saved_.update(all_towers(Purpose::statistics), sets.towers, 0, counted_once());
    }
  }
  for (auto& [population, shadow] : shadows_) {
    if (population.kind == Population::Kind::pooled) {
      shadow.update(merged(Purpose::evaluation), total, 0);
    } else {
      shadow.update(own_towers(), sets.towers, towers.first());
    }
  }
}

void SiteStatistics::collect(const at::Tensor& own) {
  const at::Tensor within = Moments(own).m2.sum(0);
  within_ = collected_.defined() ? within_ + within : within;
  const at::Tensor all = collected_.defined() ? at::cat({collected_, own}) : own;
  collected_ = kernels::merge_moments(all, all.size(0));
}

void SiteStatistics::describe(State& state, const std::string& path) {
  saved_.describe(state, path + ".saved");
  for (size_t i = 0; i < shadows_.size(); ++i) {
    shadows_[i].second.describe(state, path + ".shadow" + std::to_string(i));
  }
  state.tensor(path + ".nonfinite", nonfinite_, Across::sum);
}

at::Tensor SiteStatistics::take_collected() {
  const at::Tensor taken = collected_.defined()
                               ? at::cat({collected_[0], within_})
                               : at::zeros({1 + 3 * mean_.size(0)}, mean_.options().dtype(at::kDouble));
  collected_ = at::Tensor();
  return taken;
}

}  // namespace bnlab
