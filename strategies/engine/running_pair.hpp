// One pair of running statistics of a site: how a training step updates it, and how the ranks hold it between
// steps. Moments that enter linearly need no exchange per step: each rank then keeps a share, and the pair is
// the sum of the shares, taken before an evaluation. site_statistics.hpp chooses the moments.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "harness/state.hpp"
#include "strategies/engine/bn_rules.hpp"

namespace bnlab {

struct PairRule {
  Remember remember = Remember::tower;
  int64_t tower = 0;                     // of Remember::tower; -1: the last
  std::optional<double> momentum = 0.1;  // weight of the new value; none: the k-th update weighs 1/k
};

// pair <- decay pair + sum over sets of weights[i] (m_i, unbiased v_i). Known from sizes alone.
struct PairUpdate {
  double decay = 1;
  std::vector<double> weights;
};

// elements[i]: per channel in set i; an empty set makes no update. `updates` counts those of the pair so far
// and is advanced.
PairUpdate pair_update(const PairRule& rule, const std::vector<int64_t>& elements, int64_t& updates);

class RunningPair {
 public:
  enum class Holding {
    whole,    // every rank holds the pair, updated from the same rows
    shares,   // every rank holds a share, updated from its own rows; the pair is their sum
    replica,  // every rank holds a pair of its own (the tower that it is), the saved one is rule.tower's
  };
  // initial: [2, C], mean and variance.
  RunningPair(const PairRule& rule, Holding holding, int rank, const at::Tensor& initial);

  Holding holding() const { return holding_; }
  // Whether any set has held a value since the pair was made: the same on every rank, as the number of updates
  // of a replica is not.
  bool trained() const { return trained_; }
  // rows: [R, 1 + 2C], moments of sets first .. first + R - 1 of `elements`. A channel with a row that is not
  // finite stays as it was and is counted in `nonfinite` (int64 [], or undefined).
  void update(const at::Tensor& rows, const std::vector<int64_t>& elements, int64_t first,
              const at::Tensor& nonfinite = {});
  // The same, up to kernels::update_running, which the caller owes; none where no row takes part. count: R.
  std::optional<kernels::RunningUpdate> begin_update(int64_t count, const std::vector<int64_t>& elements,
                                                int64_t first, const at::Tensor& nonfinite);

  // This rank's summand of the pair (or of its moving average), [3, C]: mean, variance, and 1 where a channel
  // was not finite here since the last merge.
  at::Tensor share(bool averaged) const;
  // The pair that the shares of `ranks` ranks sum to. Ranks do not learn in the step that a channel was not
  // finite elsewhere: such a channel stays as it was at the last merge.
  at::Tensor pair_of_sum(const at::Tensor& sum, int ranks) const;
  void merged(const at::Tensor& pair);
  const at::Tensor& pair() const { return holding_ == Holding::whole ? held_ : merged_; }  // as last merged
  void start_from(const at::Tensor& pair);
  void describe(State& state, const std::string& path);  // everything but the rule, under names that begin so
  void average(double decay);                            // average <- decay average + (1 - decay) share
  // replica: takes the mean of the ranks' pairs.
  const at::Tensor& replica() const { return held_; }
  void set_replica(const at::Tensor& mean) { held_ = mean; }

 private:
  at::Tensor of_rank0(const at::Tensor& pair) const;
  at::Tensor summand(const at::Tensor& held) const;

  PairRule rule_;
  Holding holding_;
  int rank_;
  bool saved_here_ = true;  // replica: whether this rank's pair is the saved one
  at::Tensor held_;         // [2, C]: pair, share or own pair
  at::Tensor merged_;       // [2, C]
  at::Tensor averaged_;     // [2, C]: moving average of held_
  at::Tensor spoiled_;      // [1, C]: shares of several ranks' rows: not finite here since the last merge
  int64_t updates_ = 0;
  bool trained_ = false;
  std::vector<double> weights_;  // what the tensor holds: the weight of each row, then whether it takes part
  at::Tensor weights_tensor_;    // [2, R]
};

}  // namespace bnlab
