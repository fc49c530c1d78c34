// The small steps between the sweeps, on [sets, channels] numbers: how moments become what `normalise` takes
// and what running statistics remember, and how the backward sums become what `backward_input` takes. All but merge_sums
// are one function of a channel (finish_channel.hpp, merge_channel.hpp), run in a loop on the CPU and in one launch on CUDA.
//
// A set is what is normalised together: a tower, a group of towers, a virtual batch. Rows of moments are
// packed as kernels::moments returns them: float64 [R, 1 + 2C], (n, mean[0..C), M2[0..C)). Statistics'
// precision: see statistics_type.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "strategies/kernels/rows.hpp"

namespace bnlab::kernels {

// How the moments of a group's towers become one mean m and one variance v.
enum class Merge {
  chan,      // of the whole group: M = sum M_t + sum n_t (m_t - m)^2 (Chan et al. 1979)
  averaged,  // v = sum n_t v_t / N, without the spread of the towers' means
  e_x2,      // v = E[x2] - E[x]^2, sums and difference in the precision `statistics`
};

// Groups of `group` consecutive rows merged: [R, 1 + 2C] -> [R / group, 1 + 2C]. Empty rows take no part.
at::Tensor merge_moments(const at::Tensor& rows, int64_t group, Merge merge = Merge::chan,
                         at::ScalarType statistics = at::kDouble);

// What an all_reduce over the ranks makes Content::sums of: (n, n m, M + n m^2), or (n, n m, M) where the variance is averaged
// (e_x2 is refused), summed over those towers of each group that this rank holds. rows: of its towers, from
// `first` on; groups of `group` towers: [groups, 1 + 2C].
at::Tensor sum_moments(const at::Tensor& rows, int64_t first, int64_t group, int64_t groups, Merge merge);

// The same of other values, float32 or float64: own [G, ...] of this rank's towers is summed into out [groups, ...].
void sum_towers(const at::Tensor& own, int64_t first, int64_t group, const at::Tensor& out);

// Batch renormalisation (Ioffe 2017), with s' = sqrt(running_var + eps):
//   r = clip(sqrt(v + eps) / s', 1/r_max, r_max), d = clip((m - running_mean) / s', -d_max, d_max)
struct Renorm {
  at::Tensor pair;  // [2, C]: running mean and variance before this step
  double r_max = 1;
  double d_max = 0;
};

// y = gamma ((x - mean) invstd r + d) + beta, where r = 1 and d = 0 but for renormalisation:
// y = (x - mean) scale + shift. All [S, C] in the statistics' precision.
struct Coefficients {
  at::Tensor mean, invstd, scale, shift;
  at::Tensor count;  // n, or 1 of an empty set; the same in every channel
  at::Tensor r, d;   // undefined without renormalisation
};

// rows: [S, 1 + 2C], the moments that normalise each set; weight, bias: [C], or undefined (1 and 0).
// mean_only: invstd is 1. invstd = 1 / sqrt(M2 / n + eps) is taken in float64 and then rounded.
Coefficients finish_forward(const at::Tensor& rows, double eps, bool mean_only, const at::Tensor& weight,
                            const at::Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm = std::nullopt);

// By the running pair mean, var: [C]; var undefined: invstd is 1. The coefficients, [1, C], hold for all rows; without a
// count. invstd = 1 / sqrt(var + eps) is taken in the statistics' precision, that of the pair.
Coefficients saved_forward(const at::Tensor& mean, const at::Tensor& var, double eps,
                           const at::Tensor& weight, const at::Tensor& bias);

// dx = a g + b (x - mean) + c per set; dweight and dbias: [C], sums over this rank's sets.
struct BackwardCoefficients {
  at::Tensor mean, a, b, c;  // [S, C]
  at::Tensor dweight, dbias;
};

// own: [S, 2, C], A = sum g and B = sum g (x - mean) of each set of this rank; shared: the same over all that
// shares its moments, or undefined where no gradient passes through the moments (b = c = 0).
//   a = gamma r s, c = -a A/N, b = -a s^2 B/N (0 with mean_only); dweight = sum r s B + d A, dbias = sum A
BackwardCoefficients finish_backward(const Coefficients& forward, const at::Tensor& own,
                                     const at::Tensor& shared, bool mean_only, const at::Tensor& weight);

// held <- decay held + sum over rows of weights[0] (mean, unbiased variance), in place. held: [2, C];
// weights: float64 [2, R] on the same device, the weight of each row and whether it takes part (its values
// are not read where it does not).
//
// Without `towers`, a channel with a value that is not finite stays as it was, and nonfinite (int64 [], or undefined)
// counts it. With `towers`, [G, 2, C], weights are [3, R]: the third is the tower of each row, not decreasing. A row that is
// not finite is counted, and the pair of its tower stands in its place; the pair of each tower then becomes
// decay pair + step_weight times the plain mean of its rows that are finite, where there are any.
struct PairStep {
  at::Tensor held, weights;
  double decay = 1;
  at::Tensor nonfinite, towers;
  double step_weight = 0;  // 1 - decay
};
void update_pair(const PairStep& step, const at::Tensor& rows);

// Groups of `group` consecutive sums added up: [T, 2, C] -> [T / group, 2, C].
at::Tensor merge_sums(const at::Tensor& sums, int64_t group);

// What an exchange of moments or of sums gave to a rank whose sets are the towers `first` to first + sets - 1.
struct Exchanged {
  at::Tensor rows;  // [T, ...]: of every tower; or [T / group, ...]: of every group
  Content content;
  int64_t group;  // consecutive towers in each
  int64_t first, sets;
};

// A site whose moments are exchanged takes one step after each exchange, which is one launch on CUDA: with the two sweeps of
// each pass three kernels forward and three backward where the exchange is an all_gather, and one more each, before it, where
// it is an all_reduce (but for moments by E[x^2], which take small tensor operations).
//
// merge_moments where they are not merged, or moments from sums, then finish_forward with the moments of each set's group,
// then update_pair with those of all groups where a pair is given.
Coefficients pooled_forward(const Exchanged& met, Merge merge, double eps, bool mean_only,
                            const at::Tensor& weight, const at::Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm, const std::optional<PairStep>& pair);
// merge_sums where they are not merged (on CUDA in the order of the towers), then finish_backward with the sums of each set's
// group.
BackwardCoefficients pooled_backward(const Coefficients& forward, const at::Tensor& own, const Exchanged& met,
                                     bool mean_only, const at::Tensor& weight);

}  // namespace bnlab::kernels
