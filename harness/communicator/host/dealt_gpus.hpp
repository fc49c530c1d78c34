// Which GPU each rank of a launcher's world takes. Launchers show their ranks all GPUs of the host, or some,
// or one of their own, with CUDA_VISIBLE_DEVICES or by other means. Needs no LibTorch.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bnlab {

struct DealtGpus {
  std::vector<int> of_rank;  // by its number on the rank; -1: the rank sees none
  int gpus_taken = 0;        // 0 where a rank sees none

  std::optional<int> rank_without() const;  // the first that sees none
};

// The text in which a rank tells the others what it sees, by names_of_gpus, and what all have told.
std::string gpus_to_tell(const std::vector<std::string>& names);
std::vector<std::vector<std::string>> gpus_told(const std::vector<std::string>& texts);

// Each rank takes, of the GPUs that it sees, the one that the fewest others have taken, those that see the
// fewest first: ranks that see the same GPUs take them in turn, and ranks that see their own take those.
DealtGpus deal_gpus(const std::vector<std::vector<std::string>>& seen);

// The one that this rank takes. Throws Error (environment), and on all ranks alike, where a rank sees none,
// or where not each finds one of its own.
int gpu_of_rank(int rank, const std::vector<std::vector<std::string>>& seen);

}  // namespace bnlab
