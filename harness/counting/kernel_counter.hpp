// The kernels that a strategy's work at one norm site takes on a GPU, counted on the CPU (kernel_count.hpp).
// Not counted are a residual's gradient (one more), pairs that are carried for other populations (one more
// each), copies by which a kernel brings a tensor into another layout, and copies between a GPU and its host.
#pragma once

#include <cstdint>

#include "harness/strategy.hpp"

namespace bnlab {

struct SiteKernels {
  int64_t forward = 0, backward = 0;
};

// In the third training step: of the site (its normalisation, its activation, the running statistics), and of
// what the strategy adds to the convolution before it; collectives are not among them.
SiteKernels count_site_kernels(Strategy& strategy, const NormSite& site, const Towers& towers);

}  // namespace bnlab
