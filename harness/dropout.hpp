// Dropout whose masks depend on the seed, the step, the row and the place in the network alone: never on the
// placement, nor on how a strategy has moved rows (Srivastava et al. 2014; of whole channels: Tompson et al.
// 2015).
#pragma once

#include <torch/types.h>

#include <string>

#include "harness/pass.hpp"

namespace bnlab {

struct Dropout {
  std::string name;  // the layer's path in the network
  double probability =
      0;  // in [0, 1): of a value, or a channel, to become 0; the others grow by 1 / (1 - probability)
  bool whole_channels = false;  // of a row
};

// x: [rows of this rank, C, ...]. In evaluation it stays as it is.
at::Tensor dropout(const at::Tensor& x, const Dropout& what, const Pass& pass);

}  // namespace bnlab
