#include "strategies/engine/running_statistics.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "harness/support/error.hpp"
#include "harness/support/upload.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab {

RunningPair::RunningPair(const PairRule& rule, Distribution distribution, int rank, int64_t towers,
                         const at::Tensor& initial)
    : rule_(rule), distribution_(distribution), rank_(rank) {
  if (distribution == Distribution::independent) {
    saved_here_ = rule.tower == rank;
    rule_.tower = rank;
  }
  init_from(initial);
  set_towers(towers);
}

void RunningPair::init_from(const at::Tensor& pair, int64_t updates) {
  pair_ = by_tower() ? on_rank0(pair) : pair.clone();
  merged_ = pair.clone();
  average_ = pair_.clone();
  towers_ = towers_.defined() ? pair.unsqueeze(0).repeat({towers_.size(0), 1, 1}) : towers_;
  updates_ = updates;
  weights_.clear();  // the tensor may lie on another device than the pair
}

// The pairs of single towers begin as the pair of all.
void RunningPair::set_towers(int64_t towers) {
  if (by_tower() && towers > 0 && (!towers_.defined() || towers_.size(0) != towers))
    towers_ = merged_.unsqueeze(0).repeat({towers, 1, 1});
}

at::Tensor RunningPair::on_rank0(const at::Tensor& pair) const {
  return rank_ == 0 ? pair.clone() : at::zeros_like(pair);
}

void RunningPair::update(const at::Tensor& moments, const UpdateRows& rows, const at::Tensor& nonfinite) {
  if (const auto step = begin_update(rows, nonfinite)) kernels::update_running(*step, moments);
}

std::optional<kernels::RunningUpdate> RunningPair::begin_update(const UpdateRows& rows,
                                                                const at::Tensor& nonfinite) {
  const std::vector<int64_t>& elements = rows.elements;
  trained_ = trained_ || std::any_of(elements.begin(), elements.end(), [](int64_t n) { return n > 0; });
  const PairUpdate update = update_of_step(rule_, elements, updates_);
  set_towers(rows.towers);
  std::vector<double> weights, taken;
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto set = static_cast<size_t>(rows.first + i);
    weights.push_back(update.weights[set]);
    // With momentum 1 a tower's update in turn may weigh 0 and counts all the same.
    const bool in_turn = rule_.remember == Remember::every && elements[set] > 0;
    taken.push_back(weights.back() != 0 || in_turn ? 1 : 0);
  }
  if (std::find(taken.begin(), taken.end(), 1) == taken.end()) {
    pair_.mul_(update.decay);
    return std::nullopt;
  }
  return kernels::RunningUpdate{.running = pair_,
                                .weights = row_weights(rows, weights, taken),
                                .decay = update.decay,
                                .nonfinite_count = nonfinite,
                                .tower_running = towers_,
                                .step_weight = update.weight,
                                .ddof = rule_.ddof};
}

// They are constant but for cumulative averages and changing sizes.
const at::Tensor& RunningPair::row_weights(const UpdateRows& rows, const std::vector<double>& weights,
                                           const std::vector<double>& taken) {
  std::vector<double> all = weights;
  all.insert(all.end(), taken.begin(), taken.end());
  if (by_tower()) all.insert(all.end(), rows.local_tower.begin(), rows.local_tower.end());
  if (weights_ != all) {
    weights_ = all;
    weights_tensor_ = uploaded(all, pair_.device()).view({-1, rows.count});
  }
  return weights_tensor_;
}

at::Tensor RunningPair::summand(bool averaged) const {
  const at::Tensor& held = averaged ? average_ : pair_;
  const bool counts = by_tower() || (distribution_ == Distribution::independent ? saved_here_ : rank_ == 0);
  return counts ? held : at::zeros_like(held);
}

void RunningPair::set_merged(const at::Tensor& pair) {
  merged_ = pair.clone();
  if (by_tower()) pair_ = on_rank0(pair);
}

const at::Tensor& RunningPair::merged() const {
  return distribution_ == Distribution::replicated ? pair_ : merged_;
}

void RunningPair::update_average(const at::Tensor& decay) {
  average_.mul_(decay).add_(pair_ * (1 - decay));  // in place, since updates may be recorded
}

void RunningPair::describe(State& state, const std::string& path) {
  const Across ranks = by_tower()                                   ? Across::sum
                       : distribution_ == Distribution::independent ? Across::own
                                                                    : Across::same;
  const at::Tensor updates = at::full({}, updates_, at::kLong);
  state.tensor(path + ".pair", pair_, ranks);
  state.tensor(path + ".average", average_, ranks);
  state.tensor(path + ".merged", merged_);
  if (towers_.defined()) state.tensor(path + ".towers", towers_, Across::towers);
  state.tensor(path + ".updates", updates,
               distribution_ == Distribution::independent ? Across::own : Across::same);
  state.value(path + ".trained", trained_);
  updates_ = updates.item<int64_t>();
}

void PassesOfStep::add(const at::Tensor& rows, const MicroBatch& micro_batch) {
  if (micro_batch.is_first()) clear();
  rows_.push_back(rows);
}

at::Tensor PassesOfStep::rows() const {
  return at::stack(rows_, 1).flatten(0, 1);
}

at::Tensor PassesOfStep::merged(Merge merge, at::ScalarType statistics) const {
  return kernels::merge_moments(rows(), std::ssize(rows_), merge, statistics);
}

at::Tensor PassesOfStep::sum() const {
  return at::stack(rows_).sum(0);
}

namespace {

at::Tensor pair_of(const at::Tensor& mean, const at::Tensor& var) {
  return at::stack({mean, var.defined() ? var : at::ones_like(mean)});
}

// Pooled moments are known to every rank, and renormalisation feeds the pair into training, so every rank
// needs it in every step; all other pairs wait for the merge.
Distribution saved_distribution(const Rules& rules, bool replicas) {
  if (rules.remember == Remember::pooled || rules.renorm) return Distribution::replicated;
  return rules.remember == Remember::tower && replicas ? Distribution::independent : Distribution::partial;
}

PairRule rule_of(const Rules& rules, Remember remember, int64_t tower = 0) {
  return {.remember = remember,
          .tower = tower,
          .momentum = rules.momentum,
          .ddof = rules.ddof,
          .zero_debias = rules.zero_debias};
}

PairRule saved_rule(const Rules& rules, const Strategy::Context& context) {
  const bool last_rank = context.replicas && rules.saved_tower < 0;  // one tower per rank
  return rule_of(rules, rules.remember, last_rank ? context.statistics.size() - 1 : rules.saved_tower);
}

PairRule shadow_rule(const Population& population, const Rules& rules) {
  switch (population.kind) {
    case Population::Kind::tower:
      return rule_of(rules, Remember::tower, population.tower);
    case Population::Kind::mean:
      return rule_of(rules, Remember::mean);
    default:
      return rule_of(rules, Remember::pooled);
  }
}

int64_t towers_per_rank(const Strategy::Context& context) {
  return static_cast<int64_t>(context.samples_per_tower.size()) / context.statistics.size();
}

// Every pass writes, as a step would.
class Now : public PassUpdate {
 public:
  Now(const Pass& pass, const Sets& sets, std::shared_ptr<const Rules> rules,
      std::shared_ptr<SiteStatistics> statistics)
      : towers_(pass.towers),
        micro_batch_(pass.micro_batch),
        sets_(sets),
        rules_(std::move(rules)),
        statistics_(std::move(statistics)) {}

  std::optional<kernels::RunningUpdate> begin() override {
    return statistics_->begin_update(sets_, towers_, rules_->momentum);
  }
  void remember(const MomentsOfPass& moments) override {
    const bool together = moments.so_far != nullptr && statistics_->needs_local_moments();
    statistics_->remember(together ? moments.so_far->merged() : moments.local, sets_, towers_);
  }

 protected:
  Towers towers_;
  MicroBatch micro_batch_;
  Sets sets_;
  std::shared_ptr<const Rules> rules_;
  std::shared_ptr<SiteStatistics> statistics_;
};

// The last pass of a step writes. The virtual batches of all passes are remembered apart, as those of one
// pass are; the moments of a tower, or of pooled towers, are merged over the passes.
class PerStep : public Now {
 public:
  using Now::Now;

  std::optional<kernels::RunningUpdate> begin() override { return std::nullopt; }
  void remember(const MomentsOfPass& moments) override {
    PassesOfStep &passes = statistics_->passes(), &pooled_passes = statistics_->pooled_passes();
    passes.add(moments.local, micro_batch_);
    if (moments.pooled != nullptr) pooled_passes.add(moments.pooled->rows, micro_batch_);
    if (!micro_batch_.is_last()) return;
    const bool apart = rules_->virtual_batch > 0;
    const at::Tensor rows = apart ? passes.rows() : passes.merged();
    if (apart) sets_ = sets_.repeated(micro_batch_.count);
    if (const auto update = Now::begin()) {
      if (moments.pooled == nullptr) {
        kernels::update_running(*update, rows);
      } else {
        const at::ScalarType precision = statistics_->mean().scalar_type();
        kernels::PooledRows step = *moments.pooled;
        step.rows = step.layout == kernels::PooledLayout::group_sums
                        ? pooled_passes.sum()
                        : pooled_passes.merged(rules_->merge, precision);
        kernels::pooled_forward(step, rules_->merge, {.eps = rules_->eps}, precision, update);
      }
    }
    statistics_->remember(rows, sets_, towers_);
    passes.clear();
    pooled_passes.clear();
  }
};

// The caller writes, once it knows the sizes of all towers. Such a step has one pass.
class Later : public PassUpdate {
 public:
  Later(int64_t rows_per_sample, int64_t positions, std::shared_ptr<const Rules> rules,
        std::shared_ptr<SiteStatistics> statistics)
      : rows_per_sample_(rows_per_sample),
        positions_(positions),
        rules_(std::move(rules)),
        statistics_(std::move(statistics)) {}

  void remember(const MomentsOfPass& moments) override {
    statistics_->keep_update([local = moments.local, rows_per_sample = rows_per_sample_,
                              positions = positions_,
                              rules = rules_](SiteStatistics& site, const Towers& all) {
      const Sets sets = sets_of(all, rows_per_sample, positions, rules->virtual_batch);
      if (const auto update = site.begin_update(sets, all, rules->momentum))
        kernels::update_running(*update, local);
      site.remember(local, sets, all);
    });
  }

 private:
  int64_t rows_per_sample_, positions_;
  std::shared_ptr<const Rules> rules_;
  std::shared_ptr<SiteStatistics> statistics_;
};

class Collected : public PassUpdate {
 public:
  explicit Collected(std::shared_ptr<SiteStatistics> statistics) : statistics_(std::move(statistics)) {}
  void remember(const MomentsOfPass& moments) override { statistics_->collect(moments.local); }

 private:
  std::shared_ptr<SiteStatistics> statistics_;
};

}  // namespace

SiteStatistics::SiteStatistics(std::shared_ptr<const Rules> rules, const Strategy::Context& context,
                               at::Tensor mean, at::Tensor var)
    : rules_(std::move(rules)),
      communicator_(context.statistics),
      towers_(static_cast<int64_t>(context.samples_per_tower.size())),
      mean_(std::move(mean)),
      var_(std::move(var)),
      saved_(saved_rule(*rules_, context), saved_distribution(*rules_, context.replicas),
             communicator_.rank(), towers_per_rank(context), pair_of(mean_, var_)),
      nonfinite_(at::zeros({}, mean_.options().dtype(at::kLong))) {
  for (const Population& population : context.shadows) {
    const PairRule rule = shadow_rule(population, *rules_);
    const Distribution distribution =
        rule.remember == Remember::pooled ? Distribution::replicated : Distribution::partial;
    shadows_.emplace_back(population, RunningPair(rule, distribution, communicator_.rank(),
                                                  towers_per_rank(context), pair_of(mean_, var_)));
  }
}

RunningPair& SiteStatistics::pair(const Population& population) {
  if (population.kind == Population::Kind::saved) return saved_;
  for (auto& [carried, pair] : shadows_)
    if (carried.kind == population.kind && carried.tower == population.tower) return pair;
  throw Error(Error::Kind::refused, rules_->strategy + ": this population was not carried during training");
}

void SiteStatistics::load_into_buffers(const at::Tensor& pair) {
  mean_.copy_(pair[0]);
  if (var_.defined()) var_.copy_(pair[1]);
}

void SiteStatistics::init_from_buffers(int64_t steps) {
  const at::Tensor pair = pair_of(mean_, var_);
  saved_.init_from(pair, rules_->remember == Remember::every ? steps * std::max<int64_t>(towers_, 1) : steps);
  for (auto& [population, shadow] : shadows_) shadow.init_from(pair, steps);
  nonfinite_ = nonfinite_.to(mean_.device());
}

bool SiteStatistics::saved_by_normalising() const {
  return rules_->pools() ||
         (rules_->remember != Remember::pooled && saved_.distribution() != Distribution::replicated);
}

at::Tensor SiteStatistics::counted_once() const {
  const bool replicated = saved_.distribution() == Distribution::replicated;
  return replicated && communicator_.rank() != 0 ? at::Tensor() : nonfinite_;
}

std::optional<kernels::RunningUpdate> SiteStatistics::begin_update(const Sets& sets, const Towers& towers,
                                                                   std::optional<double> momentum) {
  const at::NoGradGuard no_grad;
  saved_.set_momentum(momentum);
  std::ranges::for_each(shadows_, [&](auto& shadow) { shadow.second.set_momentum(momentum); });
  if (!saved_by_normalising()) return std::nullopt;
  if (rules_->pools()) {
    const std::vector<int64_t> elements = sums_of_groups(sets.towers, rules_->group(towers));
    const std::vector<int64_t> none;
    return saved_.begin_update(
        {.count = static_cast<int64_t>(elements.size()), .elements = elements, .local_tower = none},
        counted_once());
  }
  return saved_.begin_update({.count = static_cast<int64_t>(sets.local_tower.size()),
                              .first = sets.first,
                              .elements = sets.elements,
                              .local_tower = sets.local_tower,
                              .towers = towers.per_rank()},
                             counted_once());
}

void SiteStatistics::remember(const at::Tensor& local, const Sets& sets, const Towers& towers) {
  const at::NoGradGuard no_grad;
  at::Tensor of_towers;  // [G, 1 + 2C]
  const auto local_towers = [&]() -> const at::Tensor& {
    if (!of_towers.defined()) {
      of_towers =
          rules_->virtual_batch == 0 ? local : merge_moments(local, sets.local_tower, towers.per_rank());
    }
    return of_towers;
  };
  at::Tensor all;  // [T, 1 + 2C]
  const auto all_towers = [&](Purpose purpose) -> const at::Tensor& {
    if (!all.defined()) all = communicator_.all_gather(local_towers(), purpose).flatten(0, 1);
    return all;
  };
  const auto pooled = [&](Purpose purpose) {
    return kernels::merge_moments(all_towers(purpose), towers.count());
  };
  const std::vector<int64_t> total = {std::accumulate(sets.towers.begin(), sets.towers.end(), int64_t{0})};
  const std::vector<int64_t> none;
  const UpdateRows pooled_row{.count = 1, .elements = total, .local_tower = none};

  if (!saved_by_normalising()) {
    if (rules_->remember == Remember::pooled) {
      saved_.update(pooled(Purpose::statistics), pooled_row, counted_once());
    } else {
      saved_.update(all_towers(Purpose::statistics),
                    {.count = towers.count(), .elements = sets.towers, .local_tower = none}, counted_once());
    }
  }
  std::vector<int64_t> in_order(static_cast<size_t>(towers.per_rank()));
  std::iota(in_order.begin(), in_order.end(), 0);
  for (auto& [population, shadow] : shadows_) {
    if (population.kind == Population::Kind::pooled) {
      shadow.update(pooled(Purpose::evaluation), pooled_row);
    } else {
      shadow.update(local_towers(), {.count = towers.per_rank(),
                                     .first = towers.first(),
                                     .elements = sets.towers,
                                     .local_tower = in_order,
                                     .towers = towers.per_rank()});
    }
  }
}

void SiteStatistics::collect(const at::Tensor& local) {
  const at::Tensor within = Moments(local).m2.sum(0);
  within_ = collected_.defined() ? within_ + within : within;
  const at::Tensor all = collected_.defined() ? at::cat({collected_, local}) : local;
  collected_ = kernels::merge_moments(all, all.size(0));
}

at::Tensor SiteStatistics::take_collected() {
  const at::Tensor taken = collected_.defined()
                               ? at::cat({collected_[0], within_})
                               : at::zeros({1 + 3 * mean_.size(0)}, mean_.options().dtype(at::kDouble));
  collected_ = at::Tensor();
  return taken;
}

void SiteStatistics::describe(State& state, const std::string& path) {
  saved_.describe(state, path + ".saved");
  for (size_t i = 0; i < shadows_.size(); ++i)
    shadows_[i].second.describe(state, path + ".shadow" + std::to_string(i));
  state.tensor(path + ".nonfinite", nonfinite_, Across::sum);
}

std::unique_ptr<PassUpdate> update_of(const Pass& pass, const Sets& sets, int64_t positions,
                                      std::shared_ptr<const Rules> rules,
                                      std::shared_ptr<SiteStatistics> statistics) {
  const MicroBatch& micro_batch = pass.micro_batch;
  if (pass.mode == Mode::calibrate) return std::make_unique<Collected>(std::move(statistics));
  if (pass.mode != Mode::train) return std::make_unique<PassUpdate>();
  if (micro_batch.update == UpdateAt::known_sizes)
    return std::make_unique<Later>(pass.rows_per_sample, positions, std::move(rules), std::move(statistics));
  if (micro_batch.update == UpdateAt::end_of_step && micro_batch.count > 1)
    return std::make_unique<PerStep>(pass, sets, std::move(rules), std::move(statistics));
  return std::make_unique<Now>(pass, sets, std::move(rules), std::move(statistics));
}

}  // namespace bnlab
