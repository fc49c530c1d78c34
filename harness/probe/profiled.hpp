// Training steps under LibTorch's profiler (Kineto): what a device spends them on. Needs no LibTorch to
// include.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/placement.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// A kernel, copy or fill of a GPU, or an operator of a CPU, in which operators of its lane may lie.
struct DeviceWork {
  std::string name;
  uint64_t lane;  // a stream or a thread
  int64_t begin_ns, end_ns;
};

// What one of `steps` steps takes, in seconds, between the beginning of the first work and the end of the
// last: {"step_s"; "idle_s", in which there is no work; "nccl_s", in which kernels of NCCL run, and
// "nccl_alone_s", in which no others do; "work": [{"name", "own_s", "count"}], the longest first}. Own time
// is without the operators inside.
Json shares_of_work(std::vector<DeviceWork> work, int64_t steps);

// The shares of every rank, in their order, of `steps` steps of the run behind `after` others. Rank 0 writes
// all that was seen of it into `file`, in Chrome's format, unless that is "". The ranks divide the run's
// towers. Called by every rank. Throws Error (environment) where the profiler sees no work.
std::vector<Json> profiled_steps(const RunSpec& asked, const Rendezvous& rendezvous, Device device,
                                 const std::string& data_dir, int64_t after, int64_t steps,
                                 const std::string& file);

}  // namespace bnlab
