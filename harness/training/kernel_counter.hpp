// The kernels that a strategy's work at one norm site takes on a GPU, counted on the CPU (kernel_count.hpp).
#pragma once

#include <cstdint>

#include "harness/strategy.hpp"

namespace bnlab {

struct SiteKernels {
  int64_t forward = 0, backward = 0;
};

// In a training step that is not the first: of the site (its normalisation, its activation, the running statistics), and
// of what the strategy adds to the convolution before it; collectives are not among them. Two steps more are made before.
SiteKernels count_site_kernels(Strategy& strategy, const NormSite& site, const Towers& towers);

}  // namespace bnlab
