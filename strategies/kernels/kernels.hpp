// What a layer computes, forward and backward: the sweeps over the activations, and the small steps between
// them.
//
// The sweeps, each over all slices of a rank at once (one launch on CUDA):
//
//   moments             n, mean m and M2 = sum (x - m)^2 of each channel
//   normalise           y = activation((x - mean) scale + shift + residual)
//   backward_sums       A = sum g and B = sum g (x - mean) of each channel
//   backward_input      dx = a g + b (x - mean) + c
//   backward_residual   g, the gradient of the residual
//
// with g = dy where y > 0 and 0 elsewhere (relu), or g = dy (none; y is then ignored). The steps
// between them say what mean, scale, shift, a, b and c are.
//
// x is [rows, C], [rows, C, L], [rows, C, H, W] or [rows, C, D, H, W], dense, contiguous or channels_last
// (3-D form for five dimensions), of dtype float64, float32, bfloat16 or float16. Any other layout is made
// contiguous first; results have x's dtype and memory format. `offsets` (S + 1 entries, from 0 to rows, not
// decreasing) cuts the rows into S slices, which may be empty: the sets of the engine (towers or virtual
// batches), or single rows where each sample is normalised by itself. Statistics and coefficients are float64
// for float64 input and float32 otherwise.
//
// The steps, a few numbers for each set and channel: how moments become
// what `normalise` takes and what running statistics keep, and how backward sums become what `backward_input`
// takes.
//
// A set is what is normalised together: a tower, a group of towers, a virtual batch, or a group of channels
// of a sample. Let n, m and v = M2 / n be the count, mean and variance of a channel in its set, let s be 1 /
// sqrt(v + eps), and let r = 1 and d = 0 but for batch renormalisation. Then
//
//   forward    y = gamma ((x - m) s r + d) + beta
//                = (x - mean) scale + shift      with mean = m, scale = gamma r s, shift = beta + gamma d
//   backward   dx = gamma r s (g - A/n - (x - m) s^2 B/n)
//                 = a g + b (x - mean) + c       with a = gamma r s, b = -a s^2 B/n, c = -a A/n
//              dgamma = sum (r s B + d A) and dbeta = sum A over the sets of this rank
//   running    running mean <- decay running mean + sum w m,
//              running variance <- decay running variance + sum w M2 / (n - ddof), over sets of weights w
//
// where g is the gradient that passes the activation, A = sum g and B = sum g (x - m). In dx, A and B are the
// sums over all elements that share the moments, so they are exchanged where the moments were. In dgamma and
// dbeta they are those of a set of this rank, and the averaging of gradients does the rest. Where no gradient
// passes through the moments, b and c are 0. Where only the mean is subtracted (mean_only), s is 1 and b is
// 0.
//
// Each step but merge_sums is a function of one channel (channel.hpp), run in a loop on the CPU and in one
// launch on CUDA, where local_forward and local_backward run it at the end of the sweep's own launch.
//
// Moments are packed as kernels::moments returns them: float64 rows [R, 1 + 2C], each (n, mean[0..C),
// M2[0..C)). The coefficients have the precision of the statistics (statistics_type).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/activation.hpp"
#include "harness/communicator/peers.hpp"

namespace bnlab::kernels {

// The sweeps

using Offsets = std::vector<int64_t>;

// The moments of every slice, packed for the exchange: float64 [S, 1 + 2C] on x's device, each row (n,
// mean[0..C), M2[0..C)). One numerically safe pass: within a block of at most a few thousand elements mean
// and M2 about that mean, blocks merged by Chan's formula in float64. An empty slice gives zeros.
at::Tensor moments(const at::Tensor& x, const Offsets& offsets);

// mean, scale, shift: [S, C] in the statistics' precision; residual: undefined or like x.
at::Tensor normalise(const at::Tensor& x, const Offsets& offsets, const at::Tensor& mean,
                     const at::Tensor& scale, const at::Tensor& shift, Activation activation,
                     const at::Tensor& residual);

// The scale and shift that `normalise` took, where no residual was added. The sign of y then follows from x,
// which the backward pass reads anyway, so that y may be undefined (not in float16 on the CPU). Undefined: it
// reads y.
struct FromInput {
  at::Tensor scale = {}, shift = {};  // [S, C]
};

// Returns A and B of every slice: [S, 2, C] in the statistics' precision.
at::Tensor backward_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                         const Offsets& offsets, const at::Tensor& mean, Activation activation,
                         const FromInput& from_input = {});

// Returns dx; a, b, c: [S, C] in the statistics' precision.
at::Tensor backward_input(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                          const Offsets& offsets, const at::Tensor& mean, const at::Tensor& a,
                          const at::Tensor& b, const at::Tensor& c, Activation activation,
                          const FromInput& from_input = {});

at::Tensor backward_residual(const at::Tensor& dy, const at::Tensor& y, Activation activation);

// The gradient that arrives in a backward pass, and what the forward pass took and gave.
struct Incoming {
  at::Tensor dy, x, y;  // y: undefined without an activation, or where its sign follows from x
  Offsets offsets;
  Activation activation = Activation::none;
  at::Tensor mean;       // [S, C], as `normalise` took it
  FromInput from_input;  // its scale and shift, which belong to this mean

  // about: the mean that the sums are taken about.
  at::Tensor sums(const at::Tensor& about) const {
    return backward_sums(dy, x, y, offsets, about, activation, known(about));
  }
  at::Tensor input_gradient(const at::Tensor& about, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& c) const {
    return backward_input(dy, x, y, offsets, about, a, b, c, activation, known(about));
  }
  at::Tensor g() const { return backward_residual(dy, y, activation); }

 private:
  // About another mean, the sign of y does not follow.
  FromInput known(const at::Tensor& about) const { return about.is_same(mean) ? from_input : FromInput{}; }
};

// Merging moments and sums of towers

// How the moments (n_t, m_t, v_t) of a group's towers become one mean m and one variance v, with N = sum n_t.
enum class Merge {
  chan,      // of the whole group: M2 = sum M2_t + sum n_t (m_t - m)^2 (Chan et al. 1979)
  averaged,  // v = sum n_t v_t / N, without the spread of the towers' means
  e_x2,      // v = E[x^2] - E[x]^2, with sums and difference in the precision `statistics`
};

// Merges each `group` consecutive rows: [R, 1 + 2C] -> [R / group, 1 + 2C]. Empty rows take no part.
at::Tensor merge_moments(const at::Tensor& rows, int64_t group, Merge merge = Merge::chan,
                         at::ScalarType statistics = at::kDouble);

// Adds up each `group` consecutive rows of backward sums: [T, 2, C] -> [T / group, 2, C].
at::Tensor merge_sums(const at::Tensor& sums, int64_t group);

// What the ranks all_reduce where moments meet by addition: for every group of `group` consecutive towers the
// sums of (n, n m, M2 + n m^2), or of (n, n m, M2) by Merge::averaged, over those of its towers that this
// rank holds. rows: the moments of this rank's towers, which begin with tower `first` of all. Returns
// [groups, 1 + 2C]. e_x2 is refused.
at::Tensor sum_moments(const at::Tensor& rows, int64_t first, int64_t group, int64_t groups, Merge merge);

// The same of any values, float32 or float64: those of this rank's towers, `local` [G, ...], are summed up
// for each group into `out` [groups, ...].
void sum_towers(const at::Tensor& local, int64_t first, int64_t group, const at::Tensor& out);

// What an exchange leaves on a rank whose sets are the towers `first` to first + sets - 1.
enum class PooledLayout {
  towers,      // a row for every tower: [T, ...]
  groups,      // a row for every group of towers, merged: [T / group, ...]
  group_sums,  // a row for every group, still the sums of sum_moments, added up over the ranks
  passes,      // a row for every pass of each set of this rank, those of a set together; forward only
};
struct PooledRows {
  at::Tensor rows;
  PooledLayout layout = PooledLayout::groups;
  int64_t group = 1;  // consecutive towers, or passes of a set, that share their moments
  int64_t first = 0, sets = 0;
  // Where `ranks` is given: rows of this rank's towers, which are still to be gathered into `rows` (layout
  // towers) by the launch that takes them.
  at::Tensor unmet = {};
  const peers::Ranks* ranks = nullptr;
};

// Whether a launch can gather such rows itself: `local` of this rank's towers, [G, 1 + 2C] or [G, 2, C],
// where `group` of all towers are merged.
bool can_gather(const at::Tensor& local, int64_t group);

// Coefficients

// Batch renormalisation (Ioffe 2017), with s' = sqrt(running variance + eps):
//   r = clip(sqrt(v + eps) / s', 1 / r_max, r_max), d = clip((m - running mean) / s', -d_max, d_max)
struct Renormalisation {
  at::Tensor running;  // [2, C]: running mean and variance before this step
  double r_max = 1;
  double d_max = 0;
};

// What the coefficients follow from beside the moments.
struct NormOptions {
  double eps = 0;
  double ddof = 0;  // taken off the count in the variance v that normalises
  bool mean_only = false;
  at::Tensor weight = {}, bias = {};  // gamma and beta [C], or undefined: 1 and 0
  std::optional<Renormalisation> renorm = {};
};

// An Array is a tensor here and a pointer in channel.hpp, so that each name stands once.
template <class Array>
struct CoefficientsOf {  // [S, C] each, in the precision of the statistics
  Array mean = {};
  Array invstd = {};             // s, taken in float64 from the moments and then rounded
  Array scale = {}, shift = {};  // of y = (x - mean) scale + shift
  Array count = {};              // n, or 1 of an empty set
  Array r = {}, d = {};          // undefined without renormalisation
};
using Coefficients = CoefficientsOf<at::Tensor>;

template <class Array>
struct BackwardCoefficientsOf {
  Array mean = {};                 // [S, C], the forward pass's
  Array a = {}, b = {}, c = {};    // [S, C], of dx = a g + b (x - mean) + c
  Array dweight = {}, dbias = {};  // [C], sums over this rank's sets
};
using BackwardCoefficients = BackwardCoefficientsOf<at::Tensor>;

// rows: [S, 1 + 2C], the moments that normalise each set. Rows may be expanded.
Coefficients forward_coefficients(const at::Tensor& rows, const NormOptions& options,
                                  at::ScalarType statistics);

// The coefficients [1, C] by running statistics, which are constants; without a count. running_mean,
// running_var: [C]; running_var undefined: s is 1. s is taken in the precision of the statistics.
Coefficients running_coefficients(const at::Tensor& running_mean, const at::Tensor& running_var, double eps,
                                  const at::Tensor& weight, const at::Tensor& bias);

// The same by the constants 0 and 1, in the precision and on the device of `options`: y = gamma x + beta.
Coefficients affine_coefficients(int64_t channels, const at::TensorOptions& options, const at::Tensor& weight,
                                 const at::Tensor& bias);

// local_sums: [S, 2, C], A and B of each set of this rank, as kernels::backward_sums returns them.
// group_sums: the same over everything that shares the set's moments, or undefined where no gradient passes
// through the moments.
BackwardCoefficients backward_coefficients(const Coefficients& forward, const at::Tensor& local_sums,
                                           const at::Tensor& group_sums, bool mean_only,
                                           const at::Tensor& weight);

// Running statistics

// running <- decay running + sum over rows of weights[0] (mean, M2 / (n - ddof)), in place.
//
// Without tower_running, a channel with a value that is not finite stays as it was, and is counted. With
// tower_running, a row that is not finite is counted, and the running statistics of its tower stand in its
// place. Those of each tower then become decay times themselves + step_weight times the plain mean of the
// tower's rows that are finite, where there are any.
struct RunningUpdate {
  at::Tensor running;  // [2, C]: mean and variance
  // float64 [2, R] on the same device: the weight of each row of moments, and whether the row takes part. The
  // moments of a row that takes no part are not used. With tower_running it is [3, R]: the third is the tower
  // of each row, not decreasing.
  at::Tensor weights;
  double decay = 1;
  at::Tensor nonfinite_count = {};  // int64 [], or undefined
  at::Tensor tower_running = {};    // [G, 2, C], or undefined
  double step_weight = 0;           // 1 - decay
  double ddof = 1;                  // 1: the unbiased variance, 0: the biased one
};
void update_running(const RunningUpdate& update, const at::Tensor& rows);

// Sites that pool their moments: all that follows an exchange, in one launch on CUDA. With its two sweeps a
// site takes three kernels forward and three backward where the exchange is an all_gather, and one more each,
// before the exchange, where it is an all_reduce.

// Merges the moments of towers or passes, or takes them from sums, as the layout says; then
// forward_coefficients with the moments of each set's group; then update_running with those of all groups, if
// `update` is given.
Coefficients pooled_forward(const PooledRows& moments, Merge merge, const NormOptions& options,
                            at::ScalarType statistics, const std::optional<RunningUpdate>& update);

// merge_sums where the sums are those of towers (on CUDA in the order of the towers); then
// backward_coefficients with the sums of each set's group.
BackwardCoefficients pooled_backward(const Coefficients& forward, const at::Tensor& local_sums,
                                     const PooledRows& sums, bool mean_only, const at::Tensor& weight);

// Sites where each set is normalised by its own moments alone and nothing is exchanged: a sweep and the steps
// that follow it, in one launch on CUDA (in which a product may be rounded together with a sum). A site takes
// two kernels forward and two backward.

struct LocalForward {
  at::Tensor rows;  // [S, 1 + 2C], the moments
  Coefficients coefficients;
};
// moments; then forward_coefficients of them; then update_running with them, if `update` is given.
LocalForward local_forward(const at::Tensor& x, const Offsets& offsets, const NormOptions& options,
                           const std::optional<RunningUpdate>& update);

// backward_sums; then backward_coefficients of them. through_moments: whether the gradient passes through the
// moments.
BackwardCoefficients local_backward(const Incoming& incoming, const Coefficients& forward,
                                    bool through_moments, bool mean_only, const at::Tensor& weight);

// Sites where each sample is normalised by itself: its channels are cut into `groups` equal parts, over which
// their moments are merged. Each step is one launch on CUDA, so that a site takes three kernels forward and
// three backward.

// rows: [samples, 1 + 2C]. Mean, s and count (positions times channels, at least 1) are those of the group,
// in each of its channels; scale = gamma s, shift = beta.
Coefficients sample_forward(const at::Tensor& rows, int64_t groups, double eps, const at::Tensor& weight,
                            const at::Tensor& bias, at::ScalarType statistics);

// sums: [samples, 2, C], A and B of each channel. With A' and B' the sums over a group's channels of gamma A
// and gamma B: a = gamma s, b = -s^3 B'/n, c = -s A'/n; dweight = sum s B and dbias = sum A over the samples.
BackwardCoefficients sample_backward(const Coefficients& forward, const at::Tensor& sums, int64_t groups,
                                     const at::Tensor& weight);

}  // namespace bnlab::kernels
