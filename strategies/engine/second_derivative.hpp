// The backward pass of a norm in operations that autograd differentiates again, for gradients of gradients
// (create_graph). It is slower than the sweeps, which stand for it in every other backward pass, and gives
// the same gradients up to rounding:
//
//   dx = s (g' - E[g'] - z' E[g' z]),  g' = gamma g,  z = (x - m) s,  E the mean over the set
//   dgamma = sum g z,  dbeta = sum g
//
// with z' = z but for averaged variances, and without the means where the moments are constants. Its own
// derivative goes through m and s, whatever dx says of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "strategies/engine/bn_rules.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

class Communicator;

// What a normalising layer is made of, for x [rows, C, ...] in the precision of the statistics. All follow
// from x by operations that autograd knows.
struct NormFormula {
  at::Tensor normalised = {};  // z, like x
  at::Tensor scale = {};       // s, to be multiplied with x; undefined: 1, and no gradient through a variance
  // E of a tensor like x, to be subtracted from it; empty: no gradient passes through the moments.
  std::function<at::Tensor(const at::Tensor&)> mean = {};
  at::Tensor about_own = {};  // z', where it is another one
  bool centred = true;        // whether m is a mean of x; false: it is 0
};

// Of a set by the moments of the batch. unbiased: what its variance is multiplied by [G, C], or undefined
// (1). pooled: [G, C] of this rank's sets, summed over all that share their moments.
NormFormula batch_formula(const at::Tensor& x, const Rules& rules, const kernels::Offsets& offsets,
                          const kernels::Coefficients& forward, const at::Tensor& unbiased,
                          const std::function<at::Tensor(const at::Tensor&)>& pooled);

struct NormGradients {
  at::Tensor dx, dweight, dbias;
};
// g: the gradient behind the activation; weight: [C] or undefined (1).
NormGradients gradients_of(const NormFormula& formula, const at::Tensor& g, const at::Tensor& weight);

// The gradient behind the activation, which autograd can differentiate by dy, in the precision of the
// statistics. The activation's own derivative is a constant.
at::Tensor differentiable(const kernels::Incoming& in);

[[noreturn]] void refuse_second_derivative(const std::string& strategy, const std::string& site = "");

// The sum over rows and positions of each slice, [S, C]; and [S, C], or [1, C], as it stands at each row.
at::Tensor slice_sums(const at::Tensor& x, const kernels::Offsets& offsets);
at::Tensor at_rows(const at::Tensor& values, const kernels::Offsets& offsets, int64_t dims);
// [C] or [1, C] as it is multiplied with x.
at::Tensor per_channel(const at::Tensor& values, int64_t dims);

// The sum over all ranks. Its derivative is the derivative of what the ranks' losses are together: one such
// sum more. site: for messages.
at::Tensor sum_over_ranks(const at::Tensor& x, Communicator& communicator, const std::string& site);
// [G, C] of this rank's towers, summed over each group of consecutive towers of all ranks.
at::Tensor sum_over_groups(const at::Tensor& parts, const Towers& towers, int64_t group,
                           Communicator& communicator, const std::string& site);

}  // namespace bnlab
