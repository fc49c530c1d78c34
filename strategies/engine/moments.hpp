// Moments of sets, packed as the kernels and the exchanges pass them: float64 rows (n, mean[0..C), M2[0..C)),
// M2 the sum of squared deviations about the mean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// Views of packed rows [K, 1 + 2C].
struct Moments {
  explicit Moments(const at::Tensor& packed);
  at::Tensor count;                   // [K, 1]
  at::Tensor mean, m2;                // [K, C]
  at::Tensor var(double ddof) const;  // [K, C]: M2 / (n - ddof)
};

// Packed rows of the same values about zero: (n, 0, sum x^2).
at::Tensor about_zero(const at::Tensor& rows);

at::Tensor pack_moments(const at::Tensor& count, const at::Tensor& mean, const at::Tensor& m2);

// kernels::merge_moments for groups of any size: row i belongs to group group_of_row[i] (not decreasing,
// < groups).
at::Tensor merge_moments(const at::Tensor& rows, const std::vector<int64_t>& group_of_row, int64_t groups);

}  // namespace bnlab
