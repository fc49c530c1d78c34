// all_reduce: the ranks add up float64 sums n, n m and M + n m^2 of every group (n, n m, M where the variance
// is averaged), from which the moments follow; the backward sums are added up as they are. What a rank
// receives does not grow with the number of ranks. Moments by E[x^2] are added up in the statistics' own
// precision.
#include <torch/types.h>

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
  // Counts come from the rows: a rank's own sizes do not tell those of the others.
  at::Tensor moments_by_squares(const at::Tensor& local) const {
    const Moments t(local);
    const at::Tensor squares = t.m2 + t.count * t.mean.square();
    at::Tensor sums = sum_by_group(pack_moments(t.count, t.count * t.mean, squares).to(pooled_.precision));
    pooled_.communicator.all_reduce(sums, Purpose::statistics);
    const Moments s(sums);
    const at::Tensor n = s.count.clamp_min(1), mean = s.mean / n;
    const at::Tensor var = s.m2 / n - mean.square();  // not clamped, as by the other routes
    const at::Tensor count = s.count.to(at::kDouble);
    return pack_moments(count, mean.to(at::kDouble), var.to(at::kDouble) * count);
  }

  // [G, ...] -> [groups, ...], zero for groups of other ranks.
  at::Tensor sum_by_group(const at::Tensor& local) const {
    std::vector<int64_t> shape = local.sizes().vec();
    shape[0] = pooled_.groups();
    const at::Tensor sums = at::empty(shape, local.options());
    kernels::sum_towers(local, pooled_.towers.first(), pooled_.group, sums);
    return sums;
  }
};

const RegisteredRoute entry{{.name = "all_reduce", .make = make_route<AllReduce>}};

}  // namespace bnlab::all_reduce
