// What one training step exchanges under a strategy, counted: a model is built with it for rank 0 of a world
// whose other ranks do not exist (counting_communicator.hpp) and takes two steps on some images, of which the
// second counts. Beside it the kernels that one site takes on a GPU. The command line
// includes this header, which names nothing of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/models/site_values.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct StepCase {
  Json strategy = {}, model = {};  // resolved components
  int64_t towers = 1;
  int64_t batch_per_tower = 1;
  int ranks = 1;
  int64_t height = 1, width = 1;
  int64_t classes = 1;
  int64_t accumulate = 1;  // passes per step, each of batch_per_tower samples of every tower
};

struct StepCost {
  struct Exchange {
    std::string purpose;  // "statistics", "shuffle", ...
    int64_t collectives = 0;
    int64_t bytes = 0;  // handed over by one rank
  };
  // One collective of a step.
  struct Call {
    std::string op, purpose;
    int64_t bytes = 0;
  };
  int64_t norm_sites = 0;
  int64_t forward_kernels = 0, backward_kernels = 0;  // at the model's first norm site, in a step's last pass
  std::vector<Exchange> exchanges;                    // a purpose without any is left out
  std::vector<Call> calls;                            // the same, one by one
  int64_t gradient_bytes = 0;        // all parameters, which meet once per step whatever the strategy
  std::vector<std::string> notes{};  // what the strategy says of how it ran
};

// Throws Error (refused) as the strategy, the model or the division of towers among ranks refuses.
StepCost count_step(const StepCase& step_case);

// What a step exchanges at norm sites alone, whose network is not asked: it takes no time, and does not
// depend on the size of images, unless the strategy moves rows. step_case: without a model; kernels and
// gradients are not counted.
StepCost count_sites(const StepCase& step_case, const std::vector<SiteValues>& sites);

}  // namespace bnlab
