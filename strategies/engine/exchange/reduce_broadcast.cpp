// reduce_broadcast: rank 0 receives the rows of every tower, merges them in tower order and sends the result
// to all.
#include "strategies/engine/exchange/route.hpp"

namespace bnlab::reduce_broadcast {

class ReduceBroadcast : public Route {
 public:
  using Route::Route;

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor&) override {
    const at::Tensor all = gathered(local);
    return from_rank0(all.defined() ? merged_moments(all) : all, local);
  }

  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming&) override {
    const at::Tensor all = gathered(local);
    return from_rank0(all.defined() ? merged_sums(all) : all, local);
  }

 private:
  at::Tensor gathered(const at::Tensor& local) const {  // on rank 0; undefined elsewhere
    const at::Tensor all = pooled_.communicator.gather(local, 0, Purpose::statistics);
    return pooled_.communicator.rank() == 0 ? all.flatten(0, 1) : at::Tensor();
  }
};

const RegisteredRoute entry{{.name = "reduce_broadcast", .make = make_route<ReduceBroadcast>}};

}  // namespace bnlab::reduce_broadcast
