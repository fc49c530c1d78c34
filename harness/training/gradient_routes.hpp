// Other ways than c10d's Reducer to keep the weights of the ranks together:
//   rank0       The gradients are summed on rank 0, averaged there and broadcast, as if they lived on one
//               GPU.
//   host        The gradients are averaged in host memory, as for parameters on the CPU.
//   averaging   No gradients are exchanged; every few steps (average_weights_every) the ranks' weights are
//               averaged (Zinkevich et al., "Parallelized Stochastic Gradient Descent", 2010).
// All are deliberately simple: each is one flat exchange after the backward pass, and no computation goes on
// beside it. Every rank ends with the same bits.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/running_statistics.hpp"

namespace bnlab {

// What training changes on a rank: in the same order, with the same sizes, on all of them.
struct Trained {
  std::vector<at::Tensor> parameters;            // each with a gradient after backward
  std::vector<at::Tensor> optimizer_state = {};  // averaged with the parameters, where these are
  RunningStatistics* statistics = nullptr;       // averaged with them, too; may be null
  int64_t steps = 0;                             // in the whole training
  bool replayed = false;                         // whether backward passes may be replays
};

// The way that the spec asks for. Called by every rank.
std::unique_ptr<GradientSync> make_gradient_sync(const RunSpec& spec, Trained trained, World& world);

}  // namespace bnlab
