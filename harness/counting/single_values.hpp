// Norm sites that see one value per channel of an image, as behind the mean of a whole map: a strategy whose
// sets are single images has nothing to normalise by there, and a training step of it is refused. Found
// without a step: the strategy is asked at these sites alone. The command line includes this header, which
// names nothing of LibTorch.
#pragma once

#include <string>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// With what a training step of this run is refused, and what helps; "" where it is not, or where that cannot
// be told before the run: of clips, and of images whose size the options of the task do not tell.
std::string single_value_refusal(const RunSpec& run);

}  // namespace bnlab
