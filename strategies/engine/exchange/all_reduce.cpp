// all_reduce: the ranks add up float64 sums n, n m and M + n m^2 of every group (n, n m, M where the variance
// is averaged), from which the moments follow; the backward sums are added up as they are. What a rank
// receives does not grow with the number of ranks. Moments by E[x^2] are added up in the statistics' own
// precision.
#include <torch/types.h>

#include <algorithm>

#include "harness/support/upload.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab::all_reduce {

class AllReduce : public Route {
 public:
  using Route::Route;

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor&) override {
    if (pooled_.merge == kernels::Merge::e_x2)
      return exchanged(moments_by_squares(local), kernels::PooledLayout::groups);
    at::Tensor sums =
        kernels::sum_moments(local, pooled_.towers.first(), pooled_.group, pooled_.groups(), pooled_.merge);
    pooled_.communicator.all_reduce(sums, Purpose::statistics);
    return exchanged(sums, kernels::PooledLayout::group_sums);
  }

  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming&) override {
    at::Tensor sums = sum_by_group(local);
    pooled_.communicator.all_reduce(sums, Purpose::statistics);
    return exchanged(sums, kernels::PooledLayout::groups);
  }

 private:
  // The means of x and of x^2 are sums weighted by n / N, with N known from sizes: the statistics' precision
  // may not hold a count.
  at::Tensor moments_by_squares(const at::Tensor& local) const {
    const Moments t(local);
    const at::Tensor total = totals(t.count.device()).unsqueeze(1);  // [groups, 1]
    const at::Tensor weight = t.count / of_local_towers(total).clamp_min(1);
    const at::Tensor squares = t.m2 / t.count.clamp_min(1) + t.mean.square();
    at::Tensor sums =
        sum_by_group(pack_moments(weight, weight * t.mean, weight * squares).to(pooled_.precision));
    pooled_.communicator.all_reduce(sums, Purpose::statistics);
    const Moments s(sums);
    return pack_moments(total, s.mean.to(at::kDouble), (s.m2 - s.mean.square()).to(at::kDouble) * total);
  }

  // Elements of every group, [groups] float64. An upload, which no recorded step may make, only where they
  // differ.
  at::Tensor totals(at::Device device) const {
    const auto sums = sums_of_groups(pooled_.elements, pooled_.group);
    if (std::ranges::all_of(sums, [&](auto sum) { return sum == sums.front(); })) {
      return at::full({pooled_.groups()}, static_cast<double>(sums.front()),
                      at::TensorOptions().dtype(at::kDouble).device(device));
    }
    return uploaded(sums, device).to(at::kDouble);
  }

  // [G, ...] -> [groups, ...], zero for groups of other ranks.
  at::Tensor sum_by_group(const at::Tensor& local) const {
    std::vector<int64_t> shape = local.sizes().vec();
    shape[0] = pooled_.groups();
    const at::Tensor sums = at::empty(shape, local.options());
    kernels::sum_towers(local, pooled_.towers.first(), pooled_.group, sums);
    return sums;
  }

  // [groups, 1] -> [G, 1]
  at::Tensor of_local_towers(const at::Tensor& groups) const {
    const Towers& towers = pooled_.towers;
    if (pooled_.groups() == 1) return groups.expand({towers.per_rank(), 1});
    const int64_t first = towers.first() / pooled_.group;
    const int64_t last = (towers.first() + towers.per_rank() - 1) / pooled_.group;
    const at::Tensor rows = groups.narrow(0, first, last - first + 1).repeat_interleave(pooled_.group, 0);
    return rows.narrow(0, towers.first() - first * pooled_.group, towers.per_rank());
  }
};

const RegisteredRoute entry{{.name = "all_reduce", .make = make_route<AllReduce>}};

}  // namespace bnlab::all_reduce
