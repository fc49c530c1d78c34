// Other ways than c10d's Reducer for the ranks to become of one mind:
//   rank 0     the gradients are summed on rank 0, averaged there and broadcast: parameters that live on one
//   GPU host       the gradients are averaged in host memory: parameters that live on the CPU averaging  no
//   gradients are exchanged; every few steps the ranks' weights are averaged
//              (Zinkevich et al., "Parallelized Stochastic Gradient Descent", 2010)
// All are deliberately simple: one flat exchange when backward is done, hidden behind nothing. Every rank
// ends with the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"

namespace bnlab {

// `parameters`: same order on all ranks, each with a gradient after backward.
std::unique_ptr<GradientSync> make_rank0_route(std::vector<at::Tensor> parameters, Communicator& gradients);
std::unique_ptr<GradientSync> make_host_route(std::vector<at::Tensor> parameters, Communicator& host);

class WeightAveraging : public GradientSync {
 public:
  WeightAveraging(std::vector<at::Tensor> parameters, Communicator& gradients);
  void before_forward() override {}
  void before_backward() override {}
  void after_backward() override {}  // gradients stay the rank's own
  void after_step() override;

  // Replaces each tensor by its mean over the ranks, in place: one all-reduce per dtype. Called by every rank
  // with tensors of the same sizes in the same order.
  void average(const std::vector<at::Tensor>& tensors);

 private:
  std::vector<at::Tensor> parameters_;
  Communicator& gradients_;
};

}  // namespace bnlab
