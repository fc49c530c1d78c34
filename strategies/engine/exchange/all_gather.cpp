// all_gather: every rank receives the rows of every tower, in tower order, and merges them itself. All ranks
// hold the same bits, whatever the backend. What a rank receives grows with the number of ranks.
#include "strategies/engine/exchange/route.hpp"

#include <ATen/ops/empty.h>

namespace bnlab::all_gather {

class AllGather : public Route {
 public:
  using Route::Route;

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor&) override { return gathered(local); }
  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming&) override {
    return gathered(local);
  }

 private:
  kernels::PooledRows gathered(const at::Tensor& local) const {
    if (pooled_.gathered_later && kernels::can_gather(local, pooled_.group)) {
      if (const peers::Ranks* ranks = pooled_.communicator.all_gather_by_kernel(local, Purpose::statistics)) {
        std::vector<int64_t> shape = local.sizes().vec();
        shape[0] *= pooled_.communicator.size();
        kernels::PooledRows rows =
            exchanged(at::empty(shape, local.options()), kernels::PooledLayout::towers);
        rows.unmet = local.contiguous();
        rows.ranks = ranks;
        return rows;
      }
    }
    const at::Tensor all = pooled_.communicator.all_gather(local, Purpose::statistics);  // [ranks, G, ...]
    return exchanged(all.flatten(0, 1), kernels::PooledLayout::towers);
  }
};

const RegisteredRoute entry{{.name = "all_gather", .make = make_route<AllGather>}};

}  // namespace bnlab::all_gather
