// The norm site of strategies that do not normalise activations: y = activation(x + residual).
#pragma once

#include "harness/network.hpp"

namespace bnlab {

class Identity : public Layer {
 public:
  explicit Identity(const NormSite& site) : activation_(site.activation) {}

  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass&) override {
    if (residual.defined()) x = x + residual;
    return activation_ == Activation::relu ? x.relu() : x;
  }

 private:
  Activation activation_;
};

}  // namespace bnlab
