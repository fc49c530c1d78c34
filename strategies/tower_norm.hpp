// The BN family's layer: a choice on three axes (which moments normalise, what the running statistics
// remember, what the gradient passes through), stated as Rules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/network.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

enum class NormaliseBy { own, pooled, running };
enum class Remember {
  nothing,
  tower,   // one pair, from `saved_tower`
  every,   // one pair, updated once per tower, in tower order
  mean,    // one pair, updated once with the plain mean over towers of m_t and of the unbiased v_t
  pooled,  // one pair, updated once with the pooled mean and the unbiased pooled variance (per group: their
           // mean)
};
enum class Gradient { full, own_tower, stopped };
enum class Variance { pooled, averaged };

struct Rules {
  std::string strategy;  // for messages
  NormaliseBy normalise_by = NormaliseBy::own;
  Remember remember = Remember::tower;
  int64_t saved_tower = 0;
  Gradient gradient = Gradient::full;
  Variance variance = Variance::pooled;
  int64_t group_size = 0;  // towers that share moments where they are pooled; 0: all
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // weight of the new value; none: cumulative average
  bool affine = true;

  int64_t group(const Towers& towers) const { return group_size == 0 ? towers.count() : group_size; }
  void check(const Towers& towers) const;  // throws Error (refused) where the towers do not fit the rules
};

// How one training step changes a pair that is linear in the towers' own moments:
// pair <- decay pair + sum over towers of weights[t] (m_t, unbiased v_t). Known from sizes alone.
struct PairUpdate {
  double decay = 1;
  std::vector<double> weights;  // [towers]
};

// elements[t]: per channel in tower t. `updates` counts the updates of the pair so far and is advanced.
PairUpdate pair_update(const Rules& rules, const std::vector<int64_t>& elements, int64_t& updates);

class TowerNorm : public Layer {
 public:
  // `pass` describes the current forward pass; it and `communicator` outlive the layer. Parameters and
  // saved pair have the options `statistics`.
  TowerNorm(const NormSite& site, const Rules& rules, const Pass& pass, Communicator& communicator,
            const at::TensorOptions& statistics);

  // Throws Error (refused) where a set of one value per channel would have to be normalised; decided
  // from sizes before any exchange.
  at::Tensor forward(at::Tensor x, at::Tensor residual) override;

  // This rank's share [2, C] of a pair that the ranks keep apart between evaluations: the pair is the sum
  // of the ranks' shares. Undefined where every rank holds the pair itself (Remember::pooled).
  const at::Tensor& share() const { return share_; }
  void set_saved_pair(const at::Tensor& pair);  // [2, C]: what the shares sum to
  int64_t nonfinite_channels() const { return nonfinite_.item<int64_t>(); }

 private:
  friend class TowerNormalisation;

  void check_sizes(const std::vector<int64_t>& elements) const;
  // rows: [R, 2, C] float64, mean and unbiased variance of every set; weights: [R].
  void remember(const at::Tensor& rows, double decay, const std::vector<double>& weights);

  NormSite site_;
  Rules rules_;
  const Pass& pass_;
  Communicator& communicator_;
  at::Tensor weight_, bias_;               // [C], undefined without affine
  at::Tensor running_mean_, running_var_;  // [C], the saved pair
  at::Tensor share_;
  at::Tensor nonfinite_;  // int64 []
  int64_t updates_ = 0;
  std::vector<double> weights_;  // that weights_tensor_ holds
  at::Tensor weights_tensor_;
};

}  // namespace bnlab
