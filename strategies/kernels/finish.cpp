#include "strategies/kernels/finish.hpp"

#include <ATen/ops/empty.h>

#include "harness/network.hpp"
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/finish_steps.hpp"

namespace bnlab::kernels {

namespace {

using at::Tensor;

BackwardCoefficients run(const BackwardStep& step) {
  in_precision(step.own.scalar_type(),
               [&](auto zero) { each_item(step.body<decltype(zero)>(), step.own.size(2), step.own); });
  return step.out;
}

Tensor empty_groups(const Tensor& rows, int64_t group) {
  return at::empty({rows.size(0) / group, rows.size(1)}, rows.options());
}

Sharing sharing_of(int64_t first, int64_t group) {
  return {static_cast<unsigned>(first), static_cast<unsigned>(group)};
}

Sharing sharing_of(const Exchanged& met) {
  const int64_t groups = met.rows.size(0) / (met.content == Content::towers ? met.group : 1);
  TORCH_INTERNAL_ASSERT((met.first + met.sets - 1) / met.group < groups);  // each set has a row
  return sharing_of(met.first, met.group);
}

}  // namespace

Tensor merge_moments(const Tensor& rows, int64_t group, Merge merge, at::ScalarType statistics) {
  const Tensor out = empty_groups(rows, group);
  in_precision(statistics, [&](auto zero) {
    each_item(merge_body<decltype(zero)>(rows, group, merge, out), rows_of(rows).channels, rows);
  });
  return out;
}

Tensor sum_moments(const Tensor& rows, int64_t first, int64_t group, int64_t groups, Merge merge) {
  const Tensor out = at::empty({groups, rows.size(1)}, rows.options());
  TORCH_INTERNAL_ASSERT(merge != Merge::e_x2);
  const SumMoments body{rows_of(rows), written<double>(out),     groups,
                        rows.size(0),  sharing_of(first, group), merge == Merge::chan};
  each_item(body, rows_of(rows).channels, rows);
  return out;
}

void sum_towers(const Tensor& own, int64_t first, int64_t group, const Tensor& out) {
  const int64_t towers = own.size(0), groups = out.size(0), columns = out.numel() / groups;
  in_precision(own.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const SumTowers<T> body{read<T>(own), written<T>(out), groups, towers, columns, sharing_of(first, group)};
    each_item(body, columns, own);
  });
}

ForwardStep forward_step(const Tensor& rows, int64_t sets, Sharing sharing, double eps, bool mean_only,
                         const Tensor& weight, const Tensor& bias, at::ScalarType statistics,
                         const std::optional<Renorm>& renorm) {
  const Tensor all =
      at::empty({renorm ? 7 : 5, sets, rows_of(rows).channels}, rows.options().dtype(statistics));
  Coefficients k{all[0], all[1], all[2], all[3], all[4], {}, {}};
  if (renorm) {
    k.r = all[5];
    k.d = all[6];
  }
  return {rows, sharing, eps, mean_only, weight, bias, renorm.value_or(Renorm()), k};
}

Coefficients finish_forward(const Tensor& rows, double eps, bool mean_only, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm) {
  const ForwardStep step =
      forward_step(rows, rows.size(0), {}, eps, mean_only, weight, bias, statistics, renorm);
  in_precision(statistics,
               [&](auto zero) { each_item(step.body<decltype(zero)>(), rows_of(rows).channels, rows); });
  return step.out;
}

Coefficients pooled_forward(const Exchanged& met, Merge merge, double eps, bool mean_only,
                            const Tensor& weight, const Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm, const std::optional<PairStep>& pair) {
  const Tensor rows = met.content == Content::groups
                          ? met.rows
                          : empty_groups(met.rows, met.content == Content::towers ? met.group : 1);
  const ForwardStep step =
      forward_step(rows, met.sets, sharing_of(met), eps, mean_only, weight, bias, statistics, renorm);
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    PooledForwardSteps<T> steps{met.content, pair.has_value(), {}, {}, step.body<T>(), {}};
    if (met.content == Content::towers) steps.merge = merge_body<T>(met.rows, met.group, merge, rows);
    TORCH_INTERNAL_ASSERT(met.content != Content::sums || merge != Merge::e_x2);
    if (met.content == Content::sums) steps.moments = moments_of_sums_body(met.rows, merge, rows);
    if (steps.updates) steps.pair = pair_body<T>(*pair, rows);
    each_item(steps, rows_of(rows).channels, rows);
  });
  return step.out;
}

Coefficients saved_forward(const Tensor& mean, const Tensor& var, double eps, const Tensor& weight,
                           const Tensor& bias) {
  const Tensor all = at::empty({4, 1, mean.size(0)}, mean.options());
  const Coefficients k{all[0], all[1], all[2], all[3], {}, {}, {}};
  in_precision(mean.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const FinishSaved<T> body{eps,
                              read<T>(mean),
                              read<T>(var),
                              read<T>(weight),
                              read<T>(bias),
                              written<T>(k.mean),
                              written<T>(k.invstd),
                              written<T>(k.scale),
                              written<T>(k.shift)};
    each_item(body, mean.size(0), mean);
  });
  return k;
}

BackwardStep backward_step(const Coefficients& forward, const Tensor& own, const Tensor& shared,
                           int64_t summands, Sharing sharing, bool mean_only, const Tensor& weight) {
  const int64_t sets = own.size(0), channels = own.size(2);
  const Tensor all = at::empty({3, sets, channels}, own.options());
  const Tensor of_parameters = at::empty({2, channels}, own.options());
  return {
      forward, own,       shared, summands,
      sharing, mean_only, weight, {forward.mean, all[0], all[1], all[2], of_parameters[0], of_parameters[1]}};
}

BackwardCoefficients finish_backward(const Coefficients& forward, const Tensor& own, const Tensor& shared,
                                     bool mean_only, const Tensor& weight) {
  return run(backward_step(forward, own, shared, /*summands=*/1, {}, mean_only, weight));
}

Tensor merge_sums(const Tensor& sums, int64_t group) {
  return sums.reshape({sums.size(0) / group, group, sums.size(1), sums.size(2)}).sum(1);
}

BackwardCoefficients pooled_backward(const Coefficients& forward, const Tensor& own, const Exchanged& met,
                                     bool mean_only, const Tensor& weight) {
  const OneKernel counted;
  TORCH_INTERNAL_ASSERT(met.content != Content::sums);
  const bool merged = met.content == Content::groups;
  if (merged || !met.rows.is_cuda()) {
    const Tensor sums = merged ? met.rows : merge_sums(met.rows, met.group);
    return run(backward_step(forward, own, sums, /*summands=*/1, sharing_of(met), mean_only, weight));
  }
  return run(backward_step(forward, own, met.rows, met.group, sharing_of(met), mean_only, weight));
}

void update_pair(const PairStep& step, const Tensor& rows) {
  in_precision(step.held.scalar_type(), [&](auto zero) {
    each_item(pair_body<decltype(zero)>(step, rows), rows_of(rows).channels, rows);
  });
}

}  // namespace bnlab::kernels
