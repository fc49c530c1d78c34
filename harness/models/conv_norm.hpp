// A convolution, the norm behind it and an activation, registered under the names that the published network gives them.
#pragma once

#include <memory>
#include <string>

#include "harness/models/backbone.hpp"
#include "harness/network.hpp"

namespace bnlab {

class ConvNorm : public torch::nn::Module {
 public:
  struct Names {
    std::string conv = "0", norm = "1";
  };

  // `name`: the path of this pair in the network; `site`: the convolution, without a name.
  ConvNorm(LayerMaker& layers, const std::string& name, ConvSite site,
           Activation activation = Activation::relu, const Names& names = {"0", "1"}) {
    site.name = path(name, names.conv);
    conv_ = register_module(names.conv, layers.conv(site));
    norm_ = register_module(names.norm, layers.norm({path(name, names.norm), site.out, activation}));
  }

  // activation(norm(conv(x)) + residual); residual may be undefined.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
    return norm_->forward(conv_->forward(std::move(x), {}, pass), std::move(residual), pass);
  }

 private:
  std::shared_ptr<Layer> conv_, norm_;
};

}  // namespace bnlab
