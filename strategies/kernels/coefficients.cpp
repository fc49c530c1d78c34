// Allocates the results of the small steps and hands the pointers of all tensors to the functions of
// channel.hpp and sample_channel.hpp, each field by its name. This file is built without contraction of
// products and sums (cmake/kernels.cmake), so that the steps round as they are written.
#include "strategies/kernels/kernels.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "harness/support/kernel_count.hpp"
#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/sample_channel.hpp"

namespace bnlab::kernels {

using at::Tensor;
using channel::Grouping;

namespace {

Tensor empty_groups(const Tensor& rows, int64_t group) {
  return at::empty({rows.size(0) / group, rows.size(1)}, rows.options());
}

Grouping grouping_of(int64_t first, int64_t group) {
  return {.first = static_cast<unsigned>(first), .size = static_cast<unsigned>(group)};
}

Grouping grouping_of(const PooledRows& pooled) {
  if (pooled.layout == PooledLayout::passes) {
    TORCH_INTERNAL_ASSERT(pooled.rows.size(0) == pooled.sets * pooled.group);
    return {};
  }
  const int64_t groups = pooled.rows.size(0) / (pooled.layout == PooledLayout::towers ? pooled.group : 1);
  TORCH_INTERNAL_ASSERT((pooled.first + pooled.sets - 1) / pooled.group < groups);  // each set has a row
  return grouping_of(pooled.first, pooled.group);
}

template <class T>
channel::MergeMoments<T> merging(const Tensor& rows, int64_t group, Merge merge, const Tensor& out) {
  return {
      .in = rows_of(rows),
      .out = written<double>(out),
      .groups = out.size(0),
      .group = group,
      .merge = merge,
  };
}

ForwardStep forward_step(const Tensor& rows, int64_t sets, Grouping grouping, const NormOptions& options,
                         at::ScalarType statistics) {
  return {
      .rows = rows,
      .grouping = grouping,
      .options = options,
      .out = empty_coefficients(sets, rows_of(rows).channels, rows.options().dtype(statistics),
                                /*with_count=*/true, options.renorm.has_value()),
  };
}

peers::Gather gather_of(const Tensor& local) {
  peers::Gather gather;
  gather.rows = local.size(0);
  gather.head = local.dim() == 2 ? 1 : 0;  // of moments
  gather.parts = 2;
  gather.channels = (local.numel() / std::max<int64_t>(gather.rows, 1) - gather.head) / 2;
  return gather;
}

// Rows of values T, which `pooled` may still have to gather, and then `body` for each of their channels.
template <class T, class Body>
void each_channel(const PooledRows& pooled, const Body& body, int64_t channels) {
#ifdef BNLAB_WITH_CUDA
  if (pooled.ranks != nullptr) {
    const OneKernel counted;
    peers::Gather gather = gather_of(pooled.unmet);
    gather.ranks = *pooled.ranks;
    gather.from = read<T>(pooled.unmet);
    gather.to = written<T>(pooled.rows);
    cuda::each_item_of<T>(gather, body, pooled.rows.device());
    return;
  }
#endif
  each_item(body, channels, pooled.rows);
}

BackwardCoefficients run(const BackwardStep& step, const PooledRows* pooled = nullptr) {
  const Tensor& sums = step.local_sums;
  in_precision(sums.scalar_type(), [&](auto zero) {
    const auto body = step.on_pointers<decltype(zero)>();
    if (pooled != nullptr)
      each_channel<decltype(zero)>(*pooled, body, sums.size(2));
    else
      each_item(body, sums.size(2), sums);
  });
  return step.out;
}

// mean undefined: 0; var undefined: s is 1.
Coefficients constant_coefficients(int64_t channels, const at::TensorOptions& options, const Tensor& mean,
                                   const Tensor& var, double eps, const Tensor& weight, const Tensor& bias) {
  const Coefficients k =
      empty_coefficients(1, channels, options, /*with_count=*/false, /*with_renorm=*/false);
  in_precision(k.mean.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::RunningForward<T> body{
        .eps = eps,
        .running_mean = read<T>(mean),
        .running_var = read<T>(var),
        .weight = read<T>(weight),
        .bias = read<T>(bias),
        .out = written<T>(k),
    };
    each_item(body, channels, k.mean);
  });
  return k;
}

}  // namespace

// One after the other in one block of memory.
Coefficients empty_coefficients(int64_t sets, int64_t channels, const at::TensorOptions& options,
                                bool with_count, bool with_renorm) {
  const Tensor all = at::empty({4 + (with_count ? 1 : 0) + (with_renorm ? 2 : 0), sets, channels}, options);
  return {
      .mean = all[0],
      .invstd = all[1],
      .scale = all[2],
      .shift = all[3],
      .count = with_count ? all[4] : Tensor(),
      .r = with_renorm ? all[5] : Tensor(),
      .d = with_renorm ? all[6] : Tensor(),
  };
}

BackwardCoefficients empty_backward_coefficients(const Coefficients& forward, const Tensor& sums) {
  const int64_t sets = sums.size(0), channels = sums.size(2);
  const Tensor all = at::empty({3, sets, channels}, sums.options());
  const Tensor of_parameters = at::empty({2, channels}, sums.options());
  return {
      .mean = forward.mean,
      .a = all[0],
      .b = all[1],
      .c = all[2],
      .dweight = of_parameters[0],
      .dbias = of_parameters[1],
  };
}

template <class T>
channel::Forward<T> ForwardStep::on_pointers() const {
  const Renormalisation renorm = options.renorm.value_or(Renormalisation());
  return {
      .moments = rows_of(rows),
      .sets = out.mean.size(0),
      .grouping = grouping,
      .eps = options.eps,
      .ddof = options.ddof,
      .mean_only = options.mean_only,
      .weight = read<T>(options.weight),
      .bias = read<T>(options.bias),
      .running = read<T>(renorm.running),
      .r_max = renorm.r_max,
      .d_max = renorm.d_max,
      .out = written<T>(out),
  };
}
template channel::Forward<float> ForwardStep::on_pointers() const;
template channel::Forward<double> ForwardStep::on_pointers() const;

template <class T>
channel::Backward<T> BackwardStep::on_pointers() const {
  return {
      .sets = local_sums.size(0),
      .channels = local_sums.size(2),
      .mean_only = mean_only,
      .local_sums = read<T>(local_sums),
      .group_sums = read<T>(group_sums),
      .summands = summands,
      .grouping = grouping,
      .forward = read<T>(forward),
      .weight = read<T>(weight),
      .out = written<T>(out),
  };
}
template channel::Backward<float> BackwardStep::on_pointers() const;
template channel::Backward<double> BackwardStep::on_pointers() const;

template <class T>
channel::UpdateRunning<T> on_pointers(const RunningUpdate& update, const Tensor& rows) {
  return {
      .moments = rows_of(rows),
      .rows = rows.size(0),
      .weights = read<double>(update.weights),
      .decay = static_cast<T>(update.decay),
      .running = written<T>(update.running),
      .nonfinite_count = written<int64_t>(update.nonfinite_count),
      .tower_running = written<T>(update.tower_running),
      .step_weight = update.step_weight,
      .ddof = update.ddof,
  };
}
template channel::UpdateRunning<float> on_pointers(const RunningUpdate&, const Tensor&);
template channel::UpdateRunning<double> on_pointers(const RunningUpdate&, const Tensor&);

Tensor merge_moments(const Tensor& rows, int64_t group, Merge merge, at::ScalarType statistics) {
  const Tensor out = empty_groups(rows, group);
  in_precision(statistics, [&](auto zero) {
    each_item(merging<decltype(zero)>(rows, group, merge, out), rows_of(rows).channels, rows);
  });
  return out;
}

Tensor merge_sums(const Tensor& sums, int64_t group) {
  return sums.reshape({sums.size(0) / group, group, sums.size(1), sums.size(2)}).sum(1);
}

Tensor sum_moments(const Tensor& rows, int64_t first, int64_t group, int64_t groups, Merge merge) {
  const Tensor out = at::empty({groups, rows.size(1)}, rows.options());
  TORCH_INTERNAL_ASSERT(merge != Merge::e_x2);
  const channel::SumMoments body{
      .in = rows_of(rows),
      .out = written<double>(out),
      .groups = groups,
      .towers = rows.size(0),
      .grouping = grouping_of(first, group),
      .merge = merge,
  };
  each_item(body, rows_of(rows).channels, rows);
  return out;
}

void sum_towers(const Tensor& local, int64_t first, int64_t group, const Tensor& out) {
  const int64_t groups = out.size(0), columns = out.numel() / groups;
  in_precision(local.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::SumTowers<T> body{
        .in = read<T>(local),
        .out = written<T>(out),
        .groups = groups,
        .towers = local.size(0),
        .columns = columns,
        .grouping = grouping_of(first, group),
    };
    each_item(body, columns, local);
  });
}

Coefficients forward_coefficients(const Tensor& rows, const NormOptions& options, at::ScalarType statistics) {
  const ForwardStep step = forward_step(rows, rows.size(0), {}, options, statistics);
  in_precision(statistics, [&](auto zero) {
    each_item(step.on_pointers<decltype(zero)>(), rows_of(rows).channels, rows);
  });
  return step.out;
}

Coefficients running_coefficients(const Tensor& running_mean, const Tensor& running_var, double eps,
                                  const Tensor& weight, const Tensor& bias) {
  const Tensor mean = running_mean.contiguous(),
               var = running_var.defined() ? running_var.contiguous() : running_var;
  return constant_coefficients(mean.size(0), mean.options(), mean, var, eps, weight, bias);
}

Coefficients affine_coefficients(int64_t channels, const at::TensorOptions& options, const Tensor& weight,
                                 const Tensor& bias) {
  return constant_coefficients(channels, options, {}, {}, /*eps=*/0, weight, bias);
}

BackwardCoefficients backward_coefficients(const Coefficients& forward, const Tensor& local_sums,
                                           const Tensor& group_sums, bool mean_only, const Tensor& weight) {
  return run({
      .forward = forward,
      .local_sums = local_sums,
      .group_sums = group_sums,
      .summands = 1,
      .grouping = {},
      .mean_only = mean_only,
      .weight = weight,
      .out = empty_backward_coefficients(forward, local_sums),
  });
}

void update_running(const RunningUpdate& update, const Tensor& rows) {
  in_precision(update.running.scalar_type(), [&](auto zero) {
    each_item(on_pointers<decltype(zero)>(update, rows), rows_of(rows).channels, rows);
  });
}

bool can_gather(const Tensor& local, int64_t group) {
  return group < kManyRows && gather_of(local).fits(local.scalar_type() == at::kDouble ? 8 : 4);
}

Coefficients pooled_forward(const PooledRows& moments, Merge merge, const NormOptions& options,
                            at::ScalarType statistics, const std::optional<RunningUpdate>& update) {
  const PooledLayout layout = moments.layout;
  TORCH_INTERNAL_ASSERT(layout != PooledLayout::group_sums || merge != Merge::e_x2);
  const Tensor rows =
      layout == PooledLayout::groups
          ? moments.rows
          : empty_groups(moments.rows, layout == PooledLayout::group_sums ? 1 : moments.group);
  const ForwardStep step = forward_step(rows, moments.sets, grouping_of(moments), options, statistics);
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    channel::PooledForward<T> body;
    body.layout = layout;
    body.updates = update.has_value();
    if (body.merges())
      body.merge = merging<T>(moments.rows, moments.group, merge, rows);
    else if (layout == PooledLayout::group_sums)
      body.moments_of_sums = {
          .in = rows_of(moments.rows),
          .out = written<double>(rows),
          .groups = rows.size(0),
          .merge = merge,
      };
    body.forward = step.on_pointers<T>();
    if (update) body.update = on_pointers<T>(*update, rows);
    each_channel<double>(moments, body, rows_of(rows).channels);
  });
  return step.out;
}

BackwardCoefficients pooled_backward(const Coefficients& forward, const Tensor& local_sums,
                                     const PooledRows& sums, bool mean_only, const Tensor& weight) {
  const OneKernel counted;
  TORCH_INTERNAL_ASSERT(sums.layout == PooledLayout::towers || sums.layout == PooledLayout::groups);
  const bool of_towers = sums.layout == PooledLayout::towers;
  const bool adds_up_itself = of_towers && sums.rows.is_cuda();  // in the same launch
  return run(
      {
          .forward = forward,
          .local_sums = local_sums,
          .group_sums = of_towers && !adds_up_itself ? merge_sums(sums.rows, sums.group) : sums.rows,
          .summands = adds_up_itself ? sums.group : 1,
          .grouping = grouping_of(sums),
          .mean_only = mean_only,
          .weight = weight,
          .out = empty_backward_coefficients(forward, local_sums),
      },
      &sums);
}

LocalForward local_forward(const Tensor& x, const Offsets& offsets, const NormOptions& options,
                           const std::optional<RunningUpdate>& update) {
  const OneKernel counted;
  const at::ScalarType statistics = statistics_type(x.scalar_type());
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda() && x.numel() > 0) {
    Tensor dense = x;
    const Layout layout = make_dense("local_forward", dense, offsets);
    Tensor rows = empty_rows(x, offsets);
    const ForwardStep step = forward_step(rows, rows.size(0), {}, options, statistics);
    cuda::moments(layout, offsets, dense, rows, &step, update ? &*update : nullptr);
    return {.rows = rows, .coefficients = step.out};
  }
#endif
  const Tensor rows = moments(x, offsets);
  const Coefficients k = forward_coefficients(rows, options, statistics);
  if (update) update_running(*update, rows);
  return {.rows = rows, .coefficients = k};
}

BackwardCoefficients local_backward(const Incoming& incoming, const Coefficients& forward,
                                    bool through_moments, bool mean_only, const Tensor& weight) {
  const OneKernel counted;
#ifdef BNLAB_WITH_CUDA
  const Tensor& x = incoming.x;
  if (x.is_cuda() && x.numel() > 0) {
    Layout layout;
    const BackwardInputs in = backward_inputs("local_backward", incoming.dy, x, incoming.y, incoming.offsets,
                                              forward.mean, incoming.activation, incoming.from_input, layout);
    const int64_t slices = static_cast<int64_t>(incoming.offsets.size()) - 1;
    Tensor sums = at::empty({slices, 2, layout.channels}, in.mean.options());
    const BackwardStep step{
        .forward = forward,
        .local_sums = sums,
        .group_sums = through_moments ? sums : Tensor(),
        .summands = 1,
        .grouping = {},
        .mean_only = mean_only,
        .weight = weight,
        .out = empty_backward_coefficients(forward, sums),
    };
    cuda::backward_sums(layout, incoming.offsets, in, sums, &step);
    return step.out;
  }
#endif
  const Tensor sums = incoming.sums(forward.mean);
  return backward_coefficients(forward, sums, through_moments ? sums : Tensor(), mean_only, weight);
}

Coefficients sample_forward(const Tensor& rows, int64_t groups, double eps, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics) {
  const int64_t samples = rows.size(0), channels = rows_of(rows).channels;
  const Coefficients k = empty_coefficients(samples, channels, rows.options().dtype(statistics),
                                            /*with_count=*/true, /*with_renorm=*/false);
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    const channel::SampleForward<T> body{
        .moments = rows_of(rows),
        .samples = samples,
        .groups = groups,
        .eps = eps,
        .weight = read<T>(weight),
        .bias = read<T>(bias),
        .out = written<T>(k),
    };
    each_item(body, body.items(/*lanes=*/1), rows);
  });
  return k;
}

BackwardCoefficients sample_backward(const Coefficients& forward, const Tensor& sums, int64_t groups,
                                     const Tensor& weight) {
  const int64_t samples = sums.size(0), channels = sums.size(2);
  const BackwardCoefficients k = empty_backward_coefficients(forward, sums);
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::SampleBackward<T> body{
        .samples = samples,
        .channels = channels,
        .groups = groups,
        .sums = read<T>(sums),
        .forward = read<T>(forward),
        .weight = read<T>(weight),
        .out = written<T>(k),
    };
    each_item(body, body.items(/*lanes=*/1), sums);
  });
  return k;
}

}  // namespace bnlab::kernels
