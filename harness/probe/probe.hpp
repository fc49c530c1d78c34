// What the exchanges of batch norm cost in a world, measured there: `bnlab probe`. Called by every rank;
// needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/placement.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

inline constexpr const char* kProbeSchema = "bnlab probe 1";

struct ProbeRequest {
  Device device = Device::cpu;
  std::vector<Exchange>
      exchanges;        // measured one after the other; on GPUs one, of which all but peers is NCCL
  double seconds = 60;  // about what all of it may take; shared among what is asked for
  int64_t largest_bytes = 256 << 20;
  int threads = 1;  // per rank
  int nodes = 1;    // machines that the ranks are spread over, as far as known
  std::string launcher = "bnlab";
  std::vector<RunSpec> runs;  // whose training steps are measured: on as many towers as there are ranks
  std::string data_dir;
};

// The probe as its JSON file holds it, on rank 0; null elsewhere. `rendezvous`: of this rank, whose exchange
// is that of the request. Progress goes to standard error. Throws Error (communication) where ranks are lost
// or an exchange has a wrong result.
Json run_probe(const ProbeRequest& request, const Rendezvous& rendezvous);

// The run without what is not a training step: nothing is evaluated, reported or kept, and it does not end.
RunSpec without_end(RunSpec run);

// The spec's runs as one tower per rank on so many ranks, likewise, one for each cell: those of other seeds
// are left out.
std::vector<RunSpec> runs_to_measure(const std::vector<RunSpec>& runs, int ranks);

// Makes this process compute with so many threads, and count its tensors' memory: before its first tensor.
void prepare_to_measure(int threads);

}  // namespace bnlab
