// How the moments and the backward sums of towers meet: pooled over groups of consecutive towers, across
// the ranks, by one of five routes (the same arithmetic at another price).
// Merge of moments (Chan et al., 1979): N = sum n, m = sum n m_t / N, M = sum M_t + sum n_t (m_t - m)^2.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// Moments of K sets, float64: views of packed rows [K, 1 + 2C].
struct Moments {
  explicit Moments(const at::Tensor& packed);
  at::Tensor count;              // [K, 1]
  at::Tensor mean;               // [K, C]
  at::Tensor m2;                 // [K, C]: sum of squared deviations about the mean
  at::Tensor pair_rows() const;  // [K, 2, C]: mean and unbiased variance
};

// [T, 1 + 2C] -> [T / group, 1 + 2C]. `statistics` is the precision of Merge::e_x2.
at::Tensor merge_moments(const at::Tensor& towers, int64_t group, Merge merge = Merge::chan,
                         at::ScalarType statistics = at::kDouble);
// The same for groups of any size: row i belongs to group group_of_row[i] (not decreasing, < groups).
at::Tensor merge_moments(const at::Tensor& rows, const std::vector<int64_t>& group_of_row, int64_t groups);

// Pools over the groups in forward, and again in backward.
class Pool {
 public:
  // elements[t]: per channel in tower t.
  Pool(const Rules& rules, const Pass& pass, const std::vector<int64_t>& elements,
       const Strategy::Context& context);

  // own: moments of this rank's towers [G, 1 + 2C] float64, taken from x. Returns [K, 1 + 2C], the same bits
  // on every rank. One exchange (gather_activations and reduce_broadcast: there and back).
  at::Tensor moments(const at::Tensor& own, const at::Tensor& x, at::ScalarType statistics);

  // own: [G, 2, C], sums about the means [K, C]. Returns [K, 2, C], in the precision in which they come.
  at::Tensor sums(const at::Tensor& own, const Incoming& incoming, const at::Tensor& means);

  std::vector<int64_t> elements_of_groups() const;  // [K]

  // Rows of [K, C] for this rank's towers: [G, C].
  at::Tensor local_rows(const at::Tensor& groups) const;

 private:
  using Merger = std::function<at::Tensor(const at::Tensor&)>;  // [T, ...] -> [K, ...]

  at::Tensor meet(const at::Tensor& own, const Merger& merge);
  at::Tensor reduce_moments(const at::Tensor& own, at::ScalarType statistics);
  at::Tensor reduce_e_x2(const Moments& own, at::ScalarType statistics);
  at::Tensor sum_by_group(const at::Tensor& own) const;  // [G, ...] -> [K, ...], zero for groups elsewhere
  at::Tensor gather_rows(const at::Tensor& x);           // of all ranks, on rank 0
  kernels::Offsets all_offsets() const;
  at::Tensor from_rank0(at::Tensor merged, at::IntArrayRef shape, const at::TensorOptions& options);

  Rules rules_;
  Towers towers_;
  int64_t rows_per_sample_;
  std::vector<int64_t> elements_;
  Communicator& statistics_;
  Communicator& host_;
  int64_t group_, groups_;
  at::Tensor all_x_;  // gather_activations: every tower's, on rank 0
};

}  // namespace bnlab
