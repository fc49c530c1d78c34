// gather_activations: the activations themselves go to rank 0, which takes the moments of all towers and
// sends them back; in the backward pass the gradients do. It fills rank 0's memory, so that no step of it
// is replayed. gather_activations_host: the same between the hosts, where the processor of rank 0 takes the
// moments.
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "harness/support/kernel_count.hpp"
#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab::gather_activations {

class GatherActivations : public Route {
 public:
  explicit GatherActivations(const PooledTowers& pooled, bool on_host = false)
      : Route(pooled), on_host_(on_host) {}

  kernels::PooledRows moments(const at::Tensor& local, const at::Tensor& x) override {
    const auto uncounted = on_the_processor();
    all_x_ = gathered(x);
    const bool here = pooled_.communicator.rank() == 0;
    const kernels::PooledRows pooled = from_rank0(
        here ? merged_moments(kernels::moments(all_x_, all_offsets())) : at::Tensor(), local, on_host_);
    if (here) means_ = Moments(pooled.rows).mean.to(all_x_.device(), pooled_.precision);
    return pooled;
  }

  kernels::PooledRows sums(const at::Tensor& local, const kernels::Incoming& incoming) override {
    const at::Tensor g = incoming.g();
    const auto uncounted = on_the_processor();
    const at::Tensor all_g = gathered(g);
    at::Tensor sums;
    if (pooled_.communicator.rank() == 0) {
      const at::Tensor mean = means_.repeat_interleave(pooled_.group, 0).contiguous();
      sums = merged_sums(kernels::backward_sums(all_g, all_x_, {}, all_offsets(), mean, Activation::none));
    }
    return from_rank0(sums, local, on_host_);
  }

 private:
  std::optional<Uncounted> on_the_processor() const {
    return on_host_ ? std::optional<Uncounted>(std::in_place) : std::nullopt;
  }

  // The rows of all ranks on rank 0, undefined elsewhere. They travel in tensors as large as the largest
  // rank's; where ranks have other positions, as [rows * positions, C].
  at::Tensor gathered(at::Tensor x) const {
    if (pooled_.towers.positions_differ()) x = x.movedim(1, -1).reshape({-1, x.size(1)});
    const kernels::Offsets offsets = all_offsets();
    const int64_t each = pooled_.towers.per_rank();
    std::vector<int64_t> rows;
    for (int64_t t = 0; t < pooled_.towers.count(); t += each)
      rows.push_back(offsets[static_cast<size_t>(t + each)] - offsets[static_cast<size_t>(t)]);
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    at::Tensor padded = (on_host_ ? x.cpu() : x).contiguous();
    if (x.size(0) < most) {
      std::vector<int64_t> missing = x.sizes().vec();
      missing[0] = most - x.size(0);
      padded = at::cat({padded, at::zeros(missing, padded.options())});
    }
    const at::Tensor all =
        met_by(on_host_).gather(padded.contiguous(), 0, Purpose::statistics);  // [ranks, most, ...]
    if (pooled_.communicator.rank() != 0) return {};
    std::vector<at::Tensor> pieces;
    for (size_t r = 0; r < rows.size(); ++r)
      pieces.push_back(all[static_cast<int64_t>(r)].narrow(0, 0, rows[r]));
    return at::cat(pieces);
  }

  kernels::Offsets all_offsets() const {
    const Towers& towers = pooled_.towers;
    kernels::Offsets offsets{0};
    for (int64_t t = 0; t < towers.count(); ++t) {
      const int64_t rows = towers.samples(t) * pooled_.rows_per_sample;
      offsets.push_back(offsets.back() + rows * (towers.positions_differ() ? towers.positions(t, 1) : 1));
    }
    return offsets;
  }

  bool on_host_;
  at::Tensor all_x_;  // on rank 0: the activations of every tower
  at::Tensor means_;  // [groups, C]
};

const RegisteredRoute entry{{.name = "gather_activations",
                             .replayable = false,
                             .moves_rows = true,
                             .make = make_route<GatherActivations>}};
const RegisteredRoute on_host{
    {.name = "gather_activations_host",
     .replayable = false,
     .moves_rows = true,
     .make =
         [](const PooledTowers& pooled) {
           return std::make_unique<GatherActivations>(pooled, /*on_host=*/true);
         },
     .note =
         [](bool on_cpu, int) {
           return std::string(
               on_cpu ? "on the CPU route gather_activations_host is the same as gather_activations" : "");
         }}};

}  // namespace bnlab::gather_activations
