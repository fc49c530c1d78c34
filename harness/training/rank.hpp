// What one rank does in one run: joins the world, trains, evaluates, writes what came out. Needs no
// LibTorch to include; the launcher calls it in a child process, or in this one under torchrun.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"

namespace bnlab {

class World;

struct RankJob {
  RunSpec spec;
  Rendezvous rendezvous;
  std::string device = "cpu";  // or "cuda"
  Json inputs;                 // what the run reads, by content (records/inputs.hpp); null: not known
  std::string data_dir;        // of --data or BNLAB_DATA; empty if neither is given
  std::string run_dir;  // exists; rank 0 writes metrics.jsonl (flushed line by line) and weights.safetensors
  int threads = 1;      // intra-op threads of this rank
};

struct RankReport {
  std::string status = "ok";  // ok, diverged, oom, error (a clear refusal), crashed (anything else)
  std::string message;        // empty if ok
  Json result;                // rank 0, status ok or diverged: the record's "result"; else null
  bool lost_contact = false;  // crashed because a collective failed or timed out: another rank is to blame
  std::vector<std::string> notes;  // for the record's "notes"
  bool met = true;                 // false: the ranks never came together, so that nothing was tried
};

// The world of the last run, for the next one of the same ranks: to meet takes long where they are many. Kept only where
// that run came to its end, which it does on all ranks or on none, so that all of them keep it or all meet anew.
struct KeptWorld {
  std::shared_ptr<World> world;
  Rendezvous rendezvous;  // where its ranks met
  std::string device;
};

// Never throws: whatever happens is in the report. With `kept` the ranks work in the world that it holds, where the job
// asks for the same but for the prefix, and leave theirs there.
RankReport run_rank(const RankJob& job, KeptWorld* kept = nullptr);

// After the last run with `kept`.
void leave(KeptWorld& kept);

// What the environment record says of the libraries: {"libtorch": "2.11.0", "cuda": ..., "nccl": ..., "cudnn_benchmark":
// whether ranks let cuDNN choose its algorithms by timing, "gpus": [...], "cpu_capability": "AVX512" (LibTorch's),
// "cpu_kernels": "avx512" (ours)}; null for what is absent.
Json library_versions();

// Whether the program holds its CUDA kernels. Without them visible_gpus() is 0.
bool built_with_cuda();
inline constexpr const char* kBuildWithCuda = "BNLAB_CUDA=on scripts/build.sh release bnlab";
int visible_gpus();

}  // namespace bnlab
