// The BN family's layer at one site: parameters, the saved pair, and the pairs carried beside it. What a
// forward pass computes is in tower_normalisation.hpp, chosen by Rules.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/network.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/running_pair.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// The sets of elements whose moments are taken: towers, or the virtual batches inside them.
struct Sets {
  kernels::Offsets offsets;          // rows of this rank's sets
  std::vector<int64_t> elements;     // per channel, of all sets of all ranks
  std::vector<int64_t> local_tower;  // of each of this rank's sets, from 0
  int64_t first = 0;                 // this rank's first set
};

class TowerNorm : public Layer {
 public:
  // What `context` borrows outlives the layer. Parameters and pairs are in the statistics' precision of
  // context.dtype.
  TowerNorm(const NormSite& site, const Rules& rules, const Strategy::Context& context);

  // Throws Error (refused) where a set of one value per channel would have to be normalised in training;
  // decided from sizes before any exchange.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;

  // The pair of a population that is carried: saved, or one of Context::shadows. Throws Error (refused).
  RunningPair& pair(const Population& population);
  RunningPair& saved() { return saved_; }
  // Puts a pair [2, C] where evaluation reads it: the buffers.
  void show(const at::Tensor& pair);
  void start_from_buffers();

  // Moments collected since the last call in Mode::calibrate, [1 + 2C] float64: of this rank's towers.
  at::Tensor take_collected();
  int64_t nonfinite_channels() const { return nonfinite_.item<int64_t>(); }

  const at::Tensor& running_mean() const { return running_mean_; }

 private:
  friend class TowerNormalisation;

  Sets sets(const Rules& rules, int64_t positions, const Pass& pass) const;
  void check_sizes(const Rules& rules, const std::vector<int64_t>& elements, const Pass& pass) const;
  void collect(const at::Tensor& moments);

  NormSite site_;
  Rules rules_;
  Strategy::Context context_;
  at::Tensor weight_, bias_;               // [C], undefined without affine
  at::Tensor running_mean_, running_var_;  // [C], what evaluation normalises by; mean_only has no variance
  RunningPair saved_;
  std::vector<std::pair<Population, RunningPair>> shadows_;
  at::Tensor collected_;  // [1, 1 + 2C]
  at::Tensor nonfinite_;  // int64 []
};

}  // namespace bnlab
