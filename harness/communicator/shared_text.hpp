// Text between ranks that have their communicators already. Called by every rank, in the same order.
#pragma once

#include <string>

#include "harness/communicator/communicator.hpp"

namespace bnlab {

// The text of rank 0, on every rank. `device`: where the communicator takes its tensors.
std::string text_of_rank0(const std::string& text, at::Device device, Communicator& communicator);

// The first text that is not empty, in the order of the ranks; of each rank's text only the first `longest`
// bytes count. Empty where all are.
std::string first_text(const std::string& text, size_t longest, at::Device device,
                       Communicator& communicator);

}  // namespace bnlab
