// The running statistics of the BN family on one page: what a training step writes (`momentum`), how the
// ranks hold it between steps, and how it reaches the buffers that evaluation and checkpoints read.
//
//   a step    pair <- (1 - a) pair + sum over sets of w_i (m_i, v_i), where v_i is M2 / (n - 1), or M2 / n by
//             Rules::ddof, and a is `momentum`, or in the k-th update 1/k or, by Rules::zero_debias,
//             momentum / (1 - (1 - momentum)^k). Rules::remember decides which
//             sets, and with what weights (update_of_step); the kernels compute it (UpdateRunning of
//             kernels/channel.hpp).
//   between   Moments that enter linearly need no exchange per step: each rank holds a partial sum of the
//             pair, and an evaluation adds them up (Distribution).
//   NaN, inf  Moments that are not finite leave the channel's pair as it was where every rank holds it
//             (pooled moments, batch_renorm). Where sets are remembered by themselves, the running pair of
//             the set's tower stands in for them: the tower's part of the pair stays, and the numbers depend
//             neither on which towers share a rank nor on when ranks merge.
//
// RunningPair is one such pair, SiteStatistics those of one site (the saved pair, and the pairs of other
// populations), PassUpdate what a pass does to them: now, once per step, or later. Those of all sites of a
// network are bn_statistics.hpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/state.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_rules.hpp"

namespace bnlab {

// Which of a step's moments a pair takes, and how much they weigh.
struct PairRule {
  Remember remember = Remember::tower;
  int64_t tower = 0;                     // for Remember::tower; -1: the last
  std::optional<double> momentum = 0.1;  // weight of the new value; none: the k-th update weighs 1/k
  double ddof = 1;                       // Rules::ddof
  bool zero_debias = false;              // Rules::zero_debias
};

// pair <- decay pair + sum over sets of weights[i] (m_i, v_i).
struct PairUpdate {
  double decay = 1;
  double weight = 0;  // 1 - decay
  std::vector<double> weights;
};

// Known from sizes alone. elements[i]: per channel in set i; an empty set makes no update. `updates` counts
// those of the pair so far and is advanced.
inline PairUpdate update_of_step(const PairRule& rule, const std::vector<int64_t>& elements,
                                 int64_t& updates) {
  PairUpdate update;
  update.weights.assign(elements.size(), 0.0);
  const auto next_weight = [&] {
    ++updates;
    const auto k = static_cast<double>(updates);
    if (!rule.momentum) return 1.0 / k;
    const double a = *rule.momentum;
    return rule.zero_debias && a > 0 ? a / (1 - std::pow(1 - a, k)) : a;
  };
  const auto is_full = [](int64_t n) { return n > 0; };
  switch (rule.remember) {
    case Remember::tower: {
      const size_t tower = rule.tower < 0 ? elements.size() - 1 : static_cast<size_t>(rule.tower);
      if (is_full(elements[tower])) {
        update.weight = update.weights[tower] = next_weight();
        update.decay = 1 - update.weight;
      }
      break;
    }
    case Remember::every:
      for (size_t t = 0; t < elements.size(); ++t) {
        if (is_full(elements[t])) {
          const double a = next_weight();
          for (double& earlier : update.weights) earlier *= 1 - a;
          update.weights[t] = a;
          update.decay *= 1 - a;
        }
      }
      update.weight = 1 - update.decay;
      break;
    case Remember::mean:
    case Remember::pooled: {  // one update with the mean over the sets that are not empty
      const auto full = std::count_if(elements.begin(), elements.end(), is_full);
      if (full > 0) {
        update.weight = next_weight();
        for (size_t t = 0; t < elements.size(); ++t)
          update.weights[t] = is_full(elements[t]) ? update.weight / static_cast<double>(full) : 0.0;
        update.decay = 1 - update.weight;
      }
      break;
    }
  }
  return update;
}

// How the ranks hold a pair between steps.
enum class Distribution {
  replicated,   // every rank holds the pair, updated from the same rows
  partial,      // every rank holds a summand, updated from its own rows
  independent,  // every rank trains apart and holds a pair of its own; that of rank PairRule::tower is saved
};

// Rows of moments for an update: of `first` and the following sets among `elements`, [R, 1 + 2C].
struct UpdateRows {
  int64_t count = 0;  // R
  int64_t first = 0;
  const std::vector<int64_t>& elements;  // per channel, of all sets
  const std::vector<int64_t>&
      local_tower;     // by row: its tower on this rank, from 0; empty where rows are pooled
  int64_t towers = 0;  // on this rank
};

class RunningPair {
 public:
  // towers: of this rank; 0: not known yet. initial: [2, C], mean and variance.
  RunningPair(const PairRule& rule, Distribution distribution, int rank, int64_t towers,
              const at::Tensor& initial);

  Distribution distribution() const { return distribution_; }
  void set_momentum(std::optional<double> momentum) { rule_.momentum = momentum; }
  // Whether any set has held a value since the pair began. The same on every rank, which the number of
  // updates of independent pairs is not.
  bool trained() const { return trained_; }

  // Counts channels that are not finite in `nonfinite` (int64 [], or undefined): once where the channel's
  // pair stays as it was, once for each set whose part of it stays.
  void update(const at::Tensor& moments, const UpdateRows& rows, const at::Tensor& nonfinite = {});
  // The same, but for kernels::update_running, which the caller owes; none where no row takes part.
  std::optional<kernels::RunningUpdate> begin_update(const UpdateRows& rows, const at::Tensor& nonfinite);

  // This rank's summand of the pair, or of its moving average: [2, C].
  at::Tensor summand(bool averaged) const;
  // The sum of the ranks' summands: the pair from now on.
  void set_merged(const at::Tensor& pair);
  const at::Tensor& merged() const;                             // as last merged; a replicated pair always is
  void init_from(const at::Tensor& pair, int64_t updates = 0);  // as if after so many updates
  void update_average(const at::Tensor& decay);                 // RunningStatistics
  // Of an independent pair: this rank's, and the mean of all ranks' in its place.
  const at::Tensor& local() const { return pair_; }
  void set_local(const at::Tensor& mean) { pair_ = mean; }

  void describe(State& state,
                const std::string& path);  // all but the rule, under names that begin with `path`

 private:
  bool by_tower() const { return distribution_ == Distribution::partial; }
  at::Tensor on_rank0(const at::Tensor& pair) const;
  void set_towers(int64_t towers);
  const at::Tensor& row_weights(const UpdateRows& rows, const std::vector<double>& weights,
                                const std::vector<double>& taken);

  PairRule rule_;
  Distribution distribution_;
  int rank_;
  bool saved_here_ = true;  // independent: whether this rank's pair is the saved one
  at::Tensor pair_;         // [2, C]: the pair, this rank's summand, or this rank's own
  at::Tensor merged_;       // [2, C]: the pair as last merged
  at::Tensor average_;      // [2, C]: moving average of pair_
  // partial: the running pair of each of this rank's towers by itself, [G, 2, C]. It stands in for moments of
  // the tower that are not finite, and has no other use.
  at::Tensor towers_;
  int64_t updates_ = 0;
  bool trained_ = false;
  std::vector<double> weights_;  // what the tensor below holds
  at::Tensor weights_tensor_;    // kernels::RunningUpdate::weights
};

// Moments of the passes of a training step so far, where it has several.
class PassesOfStep {
 public:
  // rows: [R, ...], of the same sets in each pass. The first pass of a step begins anew.
  void add(const at::Tensor& rows, const MicroBatch& micro_batch);
  void clear() { rows_.clear(); }

  at::Tensor rows() const;  // [R passes, ...], those of a set one behind another
  at::Tensor merged(Merge merge = Merge::chan, at::ScalarType statistics = at::kDouble) const;  // [R, ...]
  at::Tensor sum() const;                                                                       // [R, ...]

 private:
  std::vector<at::Tensor> rows_;
};

// The pairs of one site, and the buffers that evaluation reads.
class SiteStatistics {
 public:
  // What `context` borrows outlives the statistics; they are in the statistics' precision of context.dtype.
  // mean, var: the site's buffers [C]; var is undefined where only the mean is kept.
  SiteStatistics(std::shared_ptr<const Rules> rules, const Strategy::Context& context, at::Tensor mean,
                 at::Tensor var);

  // Other buffers in the place of these.
  void set_buffers(const at::Tensor& mean, const at::Tensor& var) {
    mean_ = mean;
    var_ = var;
  }
  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& var() const { return var_; }
  // The pair of a population that is carried: saved, or one of Context::shadows. Throws Error (refused).
  RunningPair& pair(const Population& population);
  RunningPair& saved() { return saved_; }
  double ddof() const { return rules_->ddof; }
  void load_into_buffers(const at::Tensor& pair);  // [2, C]
  void init_from_buffers(int64_t steps);

  // A training step, or each of its passes, begins with this: the update of the saved pair by the moments
  // that normalise, which the caller owes as soon as they are known: of all groups of towers where they are
  // pooled, else of this rank's own sets. None where there is nothing to do, or where the pair needs other
  // moments than those. momentum: of this step.
  std::optional<kernels::RunningUpdate> begin_update(const Sets& sets, const Towers& towers,
                                                     std::optional<double> momentum);
  // The rest of it. local: moments of this rank's sets [S, 1 + 2C]. At most one exchange, where a pair needs
  // the moments of all towers.
  void remember(const at::Tensor& local, const Sets& sets, const Towers& towers);
  // Whether that looks at the moments: it need not where the saved pair is the only one.
  bool needs_local_moments() const { return !shadows_.empty() || !saved_by_normalising(); }
  // What UpdateAt::end_of_step keeps from pass to pass: moments of this rank's sets, and as the ranks have
  // pooled them. Nothing is left of either after the last pass.
  PassesOfStep& passes() { return passes_; }
  PassesOfStep& pooled_passes() { return pooled_passes_; }
  // What UpdateAt::known_sizes leaves: the update of the last pass.
  using Update = std::function<void(SiteStatistics& site, const Towers& all)>;
  void keep_update(Update update) { kept_update_ = std::move(update); }
  Update take_update() { return std::exchange(kept_update_, {}); }
  // A pass in Mode::calibrate.
  void collect(const at::Tensor& local);
  // What was collected since the last call, [1 + 3C] float64: the moments of all sets of this rank together,
  // and the sum of the M2 of each of them.
  at::Tensor take_collected();
  void drop_collected() { collected_ = at::Tensor(); }

  // Channels whose moments were not finite, summed over the steps, as RunningPair::update counts them: of
  // this rank's own sets, or, where all ranks see the same moments, on rank 0 alone. Synchronises.
  int64_t nonfinite_channels() const { return nonfinite_.item<int64_t>(); }
  void describe(State& state, const std::string& path);

 private:
  bool saved_by_normalising()
      const;                        // whether the moments that normalise are those that the saved pair takes
  at::Tensor counted_once() const;  // nonfinite_, or undefined where another rank counts the same

  std::shared_ptr<const Rules> rules_;
  Communicator& communicator_;
  int64_t towers_;  // on all ranks; 0: not known
  at::Tensor mean_, var_;
  RunningPair saved_;
  std::vector<std::pair<Population, RunningPair>> shadows_;
  PassesOfStep passes_, pooled_passes_;
  Update kept_update_;
  at::Tensor collected_;  // [1, 1 + 2C]
  at::Tensor within_;     // [C], with `collected_`
  at::Tensor nonfinite_;  // int64 []
};

// Moments of a pass, of which its update takes those that it needs.
struct MomentsOfPass {
  const at::Tensor& local;                      // this rank's sets [S, 1 + 2C]
  const kernels::PooledRows* pooled = nullptr;  // what those of all ranks became, where they are pooled
  const PassesOfStep* so_far = nullptr;         // in the step, where they normalise together
};

// What a pass does to the running statistics of its site: here nothing, as in an evaluation.
class PassUpdate {
 public:
  virtual ~PassUpdate() = default;
  // What is owed as soon as the moments are known (SiteStatistics::begin_update), and the rest.
  virtual std::optional<kernels::RunningUpdate> begin() { return std::nullopt; }
  virtual void remember(const MomentsOfPass& /*moments*/) {}
};

// Chosen once per pass, by its mode and MicroBatch::update. positions: elements per row and channel.
std::unique_ptr<PassUpdate> update_of(const Pass& pass, const Sets& sets, int64_t positions,
                                      std::shared_ptr<const Rules> rules,
                                      std::shared_ptr<SiteStatistics> statistics);

}  // namespace bnlab
