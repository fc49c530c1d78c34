// The kernels that a strategy's work at one norm site takes on a GPU, counted on the CPU (kernel_count.hpp). Not counted are
// a residual's gradient (one more), pairs that are carried for other populations (one more each), copies that bring a tensor
// into another layout, and the bias of a convolution, which is a kernel of its own on a GPU and none here. LibTorch may
// also take one kernel on a GPU where it takes two operations here (a mean).
#pragma once

#include <cstdint>

#include "harness/strategy.hpp"

namespace bnlab {

struct SiteKernels {
  int64_t forward = 0, backward = 0;
};

// In a training step that is not the first: of the site (its normalisation, its activation, the running statistics), and
// of what the strategy adds to the convolution before it; collectives are not among them. The layers are called as in
// Mode::train, whatever mode the strategy would give them (frozen: as before it freezes). Two steps more are made before.
SiteKernels count_site_kernels(Strategy& strategy, const NormSite& site, const Towers& towers);

}  // namespace bnlab
