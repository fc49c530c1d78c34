#include "strategies/pooling.hpp"

#include <ATen/ops/empty.h>
#include <torch/types.h>

namespace bnlab {
namespace {

// [G, ...] on each rank -> [K, group_size, ...], towers in order.
at::Tensor gather_groups(const at::Tensor& local, const Towers& towers, int64_t group_size,
                         Communicator& communicator) {
  const at::Tensor all = communicator.all_gather(local, Purpose::statistics);  // [ranks, G, ...]
  std::vector<int64_t> shape{towers.count() / group_size, group_size};
  shape.insert(shape.end(), local.sizes().begin() + 1, local.sizes().end());
  return all.reshape(shape);
}

}  // namespace

Pooled pool_moments(const at::Tensor& moments, const Towers& towers, int64_t group_size,
                    Communicator& communicator) {
  const int64_t channels = (moments.size(1) - 1) / 2;
  const at::Tensor all = gather_groups(moments, towers, group_size, communicator);  // [K, g, 1 + 2C]
  const at::Tensor n = all.narrow(2, 0, 1);
  const at::Tensor mean = all.narrow(2, 1, channels);
  Pooled pooled;
  pooled.count = n.sum(1);
  pooled.mean = (n * mean).sum(1) / pooled.count.clamp_min(1);
  pooled.within = all.narrow(2, 1 + channels, channels).sum(1);
  pooled.m2 = pooled.within + (n * (mean - pooled.mean.unsqueeze(1)).square()).sum(1);
  return pooled;
}

at::Tensor pool_sums(const at::Tensor& sums, const Towers& towers, int64_t group_size,
                     Communicator& communicator) {
  return gather_groups(sums, towers, group_size, communicator).sum(1);
}

at::Tensor rows_of_local_towers(const at::Tensor& per_group, const Towers& towers, int64_t group_size) {
  if (per_group.size(0) == 1) {
    return per_group.expand({towers.per_rank(), -1});
  }
  const int64_t first = towers.first() / group_size;
  const int64_t last = (towers.first() + towers.per_rank() - 1) / group_size;
  const at::Tensor rows = per_group.narrow(0, first, last - first + 1).repeat_interleave(group_size, 0);
  return rows.narrow(0, towers.first() - first * group_size, towers.per_rank());
}

}  // namespace bnlab
