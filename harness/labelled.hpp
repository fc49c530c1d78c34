// What the labels of a task belong to, and what a model answers for: each pixel, each image, or each clip of
// frames. A run needs a task and a model that agree. Needs no LibTorch.
#pragma once

#include "harness/components/options.hpp"

namespace bnlab {

BNLAB_CHOICE(Labelled, pixels, images, clips)

}  // namespace bnlab
