// Checkpoints of a run under way, from which it goes on to the bit after it was cut short. A checkpoint is
// one file,
//   RUN/checkpoints/step<N>-<hash of the file>.safetensors
// with the tensors of every rank, and with all else in the header's metadata. Rank 0 alone reads and writes
// it. The file appears by rename; the two newest stay. The launcher removes the folder once a run has its
// record.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {

// All functions are called by every rank, in the same order.
class Checkpoints {
 public:
  // Describes all that a run must hold to go on (State).
  using Describe = std::function<void(State& state)>;

  // Finds the newest checkpoint in the run's folder that is whole and fits metrics.jsonl; notes() tell of
  // others. `inputs`: what the run reads, by content. Throws Error (refused) where the checkpoint belongs to
  // another spec, to other inputs or to other code.
  Checkpoints(const RunSpec& spec, const Json& inputs, const std::string& run_dir, World& world);

  bool found() const { return header_.has_value(); }
  // Puts back what the checkpoint holds, and holds one of its tensors at a time. These ranks need not be
  // those that left it: the result then differs in the order of sums. Throws Error (refused) where ranks
  // trained apart and these are not as many.
  void restore(const Describe& describe);

  bool due(int64_t steps_done) const { return every_ > 0 && steps_done % every_ == 0; }
  // Throws Error (environment) on rank 0 if the disk refuses.
  void save(int64_t steps_done, const Describe& describe);

  const std::vector<std::string>& notes() const { return notes_; }  // the same on every rank

 private:
  std::unique_ptr<SafeTensorsFile> newest(const std::string& run_dir);  // null where there is none

  Json run_;  // what a checkpoint must have been made by: {"format", "spec", "inputs", "numerics"}
  int64_t every_;
  bool replicas_;  // ranks train apart
  std::string run_dir_, folder_;
  World& world_;
  std::optional<SafeTensorsHeader> header_;  // the checkpoint that was found
  std::unique_ptr<SafeTensorsFile> file_;    // the same, on rank 0
  std::vector<std::string> notes_;
};

}  // namespace bnlab
