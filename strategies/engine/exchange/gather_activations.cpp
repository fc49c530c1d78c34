// gather_activations: the activations themselves go to rank 0, which takes the moments of all towers and
// sends them back; in the backward pass the gradients do. It fills rank 0's memory, so that no step of it is
// replayed.
#include <torch/types.h>

#include <algorithm>

#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab::gather_activations {

class GatherActivations : public Route {
 public:
  using Route::Route;

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor& x) override {
    all_x_ = gathered(x);
    const bool here = pooled_.communicator.rank() == 0;
    const kernels::PooledRows pooled =
        from_rank0(here ? merged_moments(kernels::moments(all_x_, all_offsets())) : at::Tensor(), local);
    means_ = Moments(pooled.rows).mean.to(pooled_.precision);
    return pooled;
  }

  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming& incoming) override {
    const at::Tensor all_g = gathered(incoming.g());
    at::Tensor sums;
    if (pooled_.communicator.rank() == 0) {
      const at::Tensor mean = means_.repeat_interleave(pooled_.group, 0).contiguous();
      sums = merged_sums(kernels::backward_sums(all_g, all_x_, {}, all_offsets(), mean, Activation::none));
    }
    return from_rank0(sums, local);
  }

 private:
  // The rows of all ranks on rank 0, undefined elsewhere. They travel in tensors as large as the largest
  // rank's.
  at::Tensor gathered(const at::Tensor& x) const {
    const Towers& towers = pooled_.towers;
    std::vector<int64_t> rows;  // of every rank
    for (int r = 0; r < towers.ranks(); ++r)
      rows.push_back((towers.begin_of_rank(r + 1) - towers.begin_of_rank(r)) * pooled_.rows_per_sample);
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    at::Tensor padded = x.contiguous();
    if (x.size(0) < most) {
      std::vector<int64_t> missing = x.sizes().vec();
      missing[0] = most - x.size(0);
      padded = at::cat({padded, at::zeros(missing, x.options())});
    }
    const at::Tensor all =
        pooled_.communicator.gather(padded.contiguous(), 0, Purpose::statistics);  // [ranks, most, ...]
    if (pooled_.communicator.rank() != 0) return {};
    std::vector<at::Tensor> pieces;
    for (size_t r = 0; r < rows.size(); ++r)
      pieces.push_back(all[static_cast<int64_t>(r)].narrow(0, 0, rows[r]));
    return at::cat(pieces);
  }

  kernels::Offsets all_offsets() const {
    kernels::Offsets offsets{0};
    for (const int64_t n : pooled_.towers.all_samples())
      offsets.push_back(offsets.back() + n * pooled_.rows_per_sample);
    return offsets;
  }

  at::Tensor all_x_;  // on rank 0: the activations of every tower
  at::Tensor means_;  // [groups, C]
};

const RegisteredRoute entry{{.name = "gather_activations",
                             .replayable = false,
                             .moves_rows = true,
                             .make = make_route<GatherActivations>}};

}  // namespace bnlab::gather_activations
