#include "strategies/engine/pooling.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/kernel_count.hpp"
#include "harness/upload.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab {
namespace {

using kernels::PooledLayout;

std::vector<int64_t> with_first(int64_t first, at::IntArrayRef sizes) {  // [first, sizes[1], ...]
  std::vector<int64_t> shape = sizes.vec();
  shape[0] = first;
  return shape;
}

}  // namespace

Pool::Pool(const Rules& rules, const Pass& pass, const Sets& sets, const Strategy::Context& context)
    : rules_(rules),
      route_(route_taken(rules.route, context.statistics.size())),
      towers_(pass.towers),
      rows_per_sample_(pass.rows_per_sample),
      elements_(sets.towers),
      statistics_(context.statistics),
      host_(context.host),
      group_(rules.group(pass.towers)),
      groups_(pass.towers.count() / group_) {}

kernels::PooledRows Pool::moments(const at::Tensor& own, const at::Tensor& x, at::ScalarType statistics) {
  const Merger merge = [&](const at::Tensor& all) {
    return kernels::merge_moments(all, group_, rules_.merge, statistics);
  };
  if (route_ == Route::all_reduce && rules_.merge == Merge::e_x2) {
    return exchanged(reduce_e_x2(own, statistics), PooledLayout::groups);
  }
  if (route_ == Route::all_reduce) {
    at::Tensor sums = kernels::sum_moments(own, towers_.first(), group_, groups_, rules_.merge);
    statistics_.all_reduce(sums, Purpose::statistics);
    return exchanged(sums, PooledLayout::group_sums);
  }
  if (route_ == Route::gather_activations) {
    all_x_ = gather_rows(x);
    const bool here = statistics_.rank() == 0;
    const at::Tensor merged = from_rank0(here ? merge(kernels::moments(all_x_, all_offsets())) : at::Tensor(),
                                         with_first(groups_, own.sizes()), own.options());
    means_ = Moments(merged).mean.to(statistics);
    return exchanged(merged, PooledLayout::groups);
  }
  return meet(own, merge);
}

kernels::PooledRows Pool::sums(const at::Tensor& own, const kernels::Incoming& incoming) {
  const Merger merge = [&](const at::Tensor& all) { return kernels::merge_sums(all, group_); };
  if (route_ == Route::all_reduce) {
    at::Tensor sums = sum_by_group(own);
    statistics_.all_reduce(sums, Purpose::statistics);
    return exchanged(sums, PooledLayout::groups);
  }
  if (route_ == Route::gather_activations) {
    const at::Tensor all_g = gather_rows(incoming.g());
    at::Tensor sums;
    if (statistics_.rank() == 0) {
      const at::Tensor mean = means_.repeat_interleave(group_, 0).contiguous();
      sums = merge(kernels::backward_sums(all_g, all_x_, {}, all_offsets(), mean, Activation::none));
    }
    return exchanged(from_rank0(sums, with_first(groups_, own.sizes()), own.options()), PooledLayout::groups);
  }
  return meet(own, merge);
}

kernels::PooledRows Pool::exchanged(const at::Tensor& rows, kernels::PooledLayout content) const {
  return {
      .rows = rows, .layout = content, .group = group_, .first = towers_.first(), .sets = towers_.per_rank()};
}

kernels::PooledRows Pool::meet(const at::Tensor& own, const Merger& merge) {
  switch (route_) {
    case Route::host: {
      const Uncounted on_the_processor;
      const at::Tensor all = host_.all_gather(own.cpu(), Purpose::statistics);
      return exchanged(merge(all.flatten(0, 1)).to(own.device()), PooledLayout::groups);
    }
    case Route::reduce_broadcast: {
      const at::Tensor all = statistics_.gather(own, 0, Purpose::statistics);
      const at::Tensor merged = statistics_.rank() == 0 ? merge(all.flatten(0, 1)) : at::Tensor();
      return exchanged(from_rank0(merged, with_first(groups_, own.sizes()), own.options()),
                       PooledLayout::groups);
    }
    default:
      return exchanged(statistics_.all_gather(own, Purpose::statistics).flatten(0, 1), PooledLayout::towers);
  }
}

at::Tensor Pool::from_rank0(at::Tensor merged, at::IntArrayRef shape, const at::TensorOptions& options) {
  merged = merged.defined() ? merged.contiguous() : at::empty(shape, options);
  statistics_.broadcast(merged, 0, Purpose::statistics);
  return merged;
}

// Sums in the statistics' precision, weighted by n/N with N known from sizes: that precision may not hold
// a count.
at::Tensor Pool::reduce_e_x2(const at::Tensor& own, at::ScalarType statistics) {
  const Moments t(own);
  const at::Tensor total =
      uploaded(sums_of_groups(elements_, group_), t.count.device()).to(at::kDouble).unsqueeze(1);  // [K, 1]
  const at::Tensor weight = t.count / local_rows(total).clamp_min(1);
  const at::Tensor squares = t.m2 / t.count.clamp_min(1) + t.mean.square();
  at::Tensor sums = sum_by_group(pack_moments(weight, weight * t.mean, weight * squares).to(statistics));
  statistics_.all_reduce(sums, Purpose::statistics);
  const Moments s(sums);
  return pack_moments(total, s.mean.to(at::kDouble), (s.m2 - s.mean.square()).to(at::kDouble) * total);
}

at::Tensor Pool::sum_by_group(const at::Tensor& own) const {
  const at::Tensor sums = at::empty(with_first(groups_, own.sizes()), own.options());
  kernels::sum_towers(own, towers_.first(), group_, sums);
  return sums;
}

at::Tensor Pool::gather_rows(const at::Tensor& x) {
  std::vector<int64_t> rows;  // of every rank
  for (int r = 0; r < towers_.ranks(); ++r) {
    rows.push_back((towers_.begin_of_rank(r + 1) - towers_.begin_of_rank(r)) * rows_per_sample_);
  }
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  at::Tensor padded = x.contiguous();
  if (x.size(0) < most) {
    padded = at::cat({padded, at::zeros(with_first(most - x.size(0), x.sizes()), x.options())});
  }
  const at::Tensor all =
      statistics_.gather(padded.contiguous(), 0, Purpose::statistics);  // [ranks, most, ...]
  if (statistics_.rank() != 0) {
    return {};
  }
  std::vector<at::Tensor> pieces;
  for (size_t r = 0; r < rows.size(); ++r) {
    pieces.push_back(all[static_cast<int64_t>(r)].narrow(0, 0, rows[r]));
  }
  return at::cat(pieces);
}

kernels::Offsets Pool::all_offsets() const {
  kernels::Offsets offsets{0};
  for (const int64_t n : towers_.all_samples()) {
    offsets.push_back(offsets.back() + n * rows_per_sample_);
  }
  return offsets;
}

at::Tensor Pool::local_rows(const at::Tensor& groups) const {
  if (groups_ == 1) {
    return groups.expand(with_first(towers_.per_rank(), groups.sizes()));
  }
  const int64_t first = towers_.first() / group_;
  const int64_t last = (towers_.first() + towers_.per_rank() - 1) / group_;
  const at::Tensor rows = groups.narrow(0, first, last - first + 1).repeat_interleave(group_, 0);
  return rows.narrow(0, towers_.first() - first * group_, towers_.per_rank());
}

}  // namespace bnlab
