// A convolution that says what it convolves with.
#pragma once

#include "harness/network.hpp"

namespace bnlab {

class Convolution : public Layer {
 public:
  virtual at::Tensor filters() const = 0;  // [out, in, kernel, kernel]
};

}  // namespace bnlab
