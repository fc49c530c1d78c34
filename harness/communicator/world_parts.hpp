// What a world is made of: communicators over c10d or through shared memory, and c10d's Reducer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/host/shared_memory.hpp"

namespace bnlab {

std::unique_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                     Ledger& ledger, std::string group);

// The same over a backend that the first collective makes: on all ranks at the same place, as collectives
// are.
std::unique_ptr<Communicator> make_lazy_communicator(int rank, int size,
                                                     std::function<c10::intrusive_ptr<c10d::Backend>()> make,
                                                     Ledger& ledger, std::string group);

// A communicator through memory that the ranks of one host share, for CPU tensors. Sums are added up in rank
// order, so that all ranks hold the same bits. all_reduce_async is complete when it returns.
std::unique_ptr<Communicator> make_shared_communicator(std::unique_ptr<SharedMemory> memory, Ledger& ledger,
                                                       std::string group);

// c10d's Reducer: buckets of gradients, averaged while backward still runs.
std::unique_ptr<GradientSync> make_reducer(std::vector<at::Tensor> parameters,
                                           const c10::intrusive_ptr<c10d::Backend>& backend,
                                           at::Device device, Ledger& ledger);

}  // namespace bnlab
