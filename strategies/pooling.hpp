// How the moments of towers meet: pooling over groups of consecutive towers, across the ranks.
// Merge of moments (Chan et al., 1979): N = sum n, m = sum n m_t / N, M = sum M_t + sum n_t (m_t - m)^2.
#pragma once

#include <ATen/core/Tensor.h>

#include "harness/communicator/communicator.hpp"
#include "harness/towers.hpp"

namespace bnlab {

// Moments of K groups, float64.
struct Pooled {
  at::Tensor count;   // [K, 1]
  at::Tensor mean;    // [K, C]
  at::Tensor m2;      // [K, C]: sum of squared deviations about the group's mean
  at::Tensor within;  // [K, C]: sum over the group's towers of M_t, without the spread of their means
};

// Every group has `group_size` towers (which divides their number). moments: this rank's towers,
// [G, 1 + 2C] float64. One collective (all_gather, purpose statistics); all ranks get the same bits.
Pooled pool_moments(const at::Tensor& moments, const Towers& towers, int64_t group_size,
                    Communicator& communicator);

// The same for sums: [G, 2, C] -> [K, 2, C], in the precision in which they come.
at::Tensor pool_sums(const at::Tensor& sums, const Towers& towers, int64_t group_size,
                     Communicator& communicator);

// Rows of [K, ...] for this rank's towers: [G, ...].
at::Tensor rows_of_local_towers(const at::Tensor& per_group, const Towers& towers, int64_t group_size);

}  // namespace bnlab
