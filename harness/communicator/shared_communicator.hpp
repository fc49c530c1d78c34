// A Communicator through memory that the ranks of one host share, for CPU tensors.
#pragma once

#include <memory>
#include <string>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/shared_memory.hpp"

namespace bnlab {

// Sums are added up in rank order, so that all ranks hold the same bits. all_reduce_async does not return before it is
// through.
std::unique_ptr<Communicator> make_shared_communicator(std::unique_ptr<SharedMemory> memory, Ledger& ledger,
                                                       std::string group);

}  // namespace bnlab
