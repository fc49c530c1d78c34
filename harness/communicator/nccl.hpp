// Process groups over NCCL.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <string>

#include "harness/communicator/rendezvous.hpp"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace bnlab {

// In contact with the others before the first step, so that no step pays for it. Throws Error (environment)
// where LibTorch has no NCCL.
c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Rendezvous& at, c10::Device device);

// The version of the NCCL that is loaded, such as "2.28.9". It need not be the one that LibTorch was built
// with. Empty without NCCL.
std::string nccl_version();

}  // namespace bnlab
