// How the moments and the backward sums of towers meet: pooled over groups of consecutive towers, across
// the ranks, by one of five routes (the same numbers up to rounding, at another price).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/sets.hpp"
#include "strategies/kernels/coefficients.hpp"

namespace bnlab {

// Pools over the groups in forward, and again in backward.
class Pool {
 public:
  Pool(const Rules& rules, const Pass& pass, const Sets& sets, const Strategy::Context& context);

  // own: moments of this rank's towers [G, 1 + 2C] float64, taken from x. Returns rows of moments, or what they
  // follow from (kernels::PooledLayout), the same bits on every rank. `statistics`: the statistics' precision. One exchange (gather_activations and
  // reduce_broadcast: there and back).
  kernels::PooledRows moments(const at::Tensor& own, const at::Tensor& x, at::ScalarType statistics);

  // own: [G, 2, C], sums about the means of the moments that met. Returns rows [2, C], in the precision in which
  // they come.
  kernels::PooledRows sums(const at::Tensor& own, const kernels::Incoming& incoming);

 private:
  using Merger = std::function<at::Tensor(const at::Tensor&)>;  // [T, ...] -> [K, ...]

  kernels::PooledRows exchanged(const at::Tensor& rows, kernels::PooledLayout content) const;
  kernels::PooledRows meet(const at::Tensor& own, const Merger& merge);
  at::Tensor reduce_e_x2(const at::Tensor& own, at::ScalarType statistics);
  at::Tensor sum_by_group(const at::Tensor& own) const;   // [G, ...] -> [K, ...], zero for groups elsewhere
  at::Tensor local_rows(const at::Tensor& groups) const;  // of [K, ...], for this rank's towers: [G, ...]
  at::Tensor gather_rows(const at::Tensor& x);            // of all ranks, on rank 0
  kernels::Offsets all_offsets() const;
  at::Tensor from_rank0(at::Tensor merged, at::IntArrayRef shape, const at::TensorOptions& options);

  Rules rules_;
  Route route_;  // never automatic
  Towers towers_;
  int64_t rows_per_sample_;
  std::vector<int64_t> elements_;  // of every tower, per channel
  Communicator& statistics_;
  Communicator& host_;
  int64_t group_, groups_;
  at::Tensor all_x_,
      means_;  // gather_activations: every tower's activations, on rank 0, and the means [K, C]
};

}  // namespace bnlab
