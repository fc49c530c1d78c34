// What one rank does in one run: it joins the world, trains, evaluates and writes what came out. Needs no
// LibTorch to include. The launcher calls it in a child process, or in its own process under torchrun.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/placement.hpp"
#include "harness/store/record.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class World;

struct RankJob {
  RunSpec spec;
  Rendezvous rendezvous;
  Device device = Device::cpu;
  Json inputs;           // what the run reads, by content (harness/store/inputs.hpp); null: not known
  std::string data_dir;  // --data or BNLAB_DATA; empty if neither is given
  std::string run_dir;   // exists; rank 0 writes metrics.jsonl (flushed line by line) and weights.safetensors
  int threads = 1;       // intra-op threads of this rank in this run
  // When the launcher started the run.
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

struct RankReport {
  Status status = Status::ok;  // ok, diverged, oom, error (a clear refusal), crashed (anything else)
  std::string message = {};    // empty if ok
  Json result = {};            // rank 0, status ok or diverged: the record's "result"; else null
  bool lost_contact = false;   // a collective failed or timed out: another rank is to blame for a crash
  std::vector<std::string> notes = {};      // for the record's "notes"
  std::vector<std::string> lost_work = {};  // those on what of an earlier attempt could not be used
  bool world_formed = true;                 // false: the ranks never came together, so that nothing was tried
};

// The world of the last run, for the next run of the same ranks, because joining takes long where they are
// many. It is kept only where that run came to its end. A run does so on all ranks or on none, so that all
// ranks keep their world or all join anew.
struct KeptWorld {
  std::shared_ptr<World> world;
  Rendezvous rendezvous;  // where its ranks meet
  Device device = Device::cpu;
  bool is_kept = false;  // by the last run; one may end well and leave its world, where it could not be timed
};

// Never throws: whatever happens is in the report. With `kept` the ranks work in the world that it holds, if
// the job asks for the same one but for the prefix, and their world is in `kept` afterwards.
RankReport run_rank(const RankJob& job, KeptWorld* kept = nullptr);

// After the last run with `kept`.
void shutdown(KeptWorld& kept);

}  // namespace bnlab
