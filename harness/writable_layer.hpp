// A norm layer that a program may write to between passes: other tensors in the place of its own, and other
// numbers (harness/embed).
#pragma once

#include <optional>
#include <string>

#include "harness/network.hpp"

namespace bnlab {

class WritableLayer : public Layer {
 public:
  // From the next pass on: another tensor, of the same shape, in the place of a parameter or buffer.
  virtual void replace(const std::string& name, const at::Tensor& tensor) { parameters_[name] = tensor; }
  // Likewise, where the layer has such.
  virtual void set_eps(double /*eps*/) {}
  virtual void set_momentum(std::optional<double> /*momentum*/) {}

 protected:
  // Contiguous; undefined where there is none of this name.
  at::Tensor parameter(const std::string& name) const {
    const at::Tensor* found = parameters_.find(name);
    return found == nullptr ? at::Tensor() : found->contiguous();
  }
};

}  // namespace bnlab
