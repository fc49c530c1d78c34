// The two things that a world makes of a c10d backend.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"

namespace bnlab {

std::unique_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                     Ledger& ledger, std::string group);

// The same over a backend that its first collective makes: on all ranks at the same place, as collectives are.
std::unique_ptr<Communicator> make_late_communicator(int rank, int size,
                                                     std::function<c10::intrusive_ptr<c10d::Backend>()> make,
                                                     Ledger& ledger, std::string group);

// c10d's Reducer: buckets of gradients, averaged while backward still runs.
std::unique_ptr<GradientSync> make_reducer(std::vector<at::Tensor> parameters,
                                           const c10::intrusive_ptr<c10d::Backend>& backend,
                                           at::Device device, Ledger& ledger);

}  // namespace bnlab
