// A convolution, the norm behind it and an activation, registered under the names that the published network
// gives them: as two modules of a module that has more (add_pair), or as a module of their own (ConvNorm).
#pragma once

#include <memory>
#include <string>

#include "harness/models/backbone.hpp"
#include "harness/network.hpp"

namespace bnlab {

struct ConvNormPair {
  struct Names {
    std::string conv = "0", norm = "1";
  };

  std::shared_ptr<Layer> conv, norm;

  // activation(norm(conv(x)) + residual); residual may be undefined.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) const {
    return norm->forward(conv->forward(std::move(x), {}, pass), std::move(residual), pass);
  }
};

// Registers a pair in `owner`, whose path in the network is `name`; `site`: the convolution, without a name.
inline ConvNormPair add_pair(torch::nn::Module& owner, LayerMaker& layers, const std::string& name,
                             const ConvNormPair::Names& names, ConvSite site,
                             Activation activation = Activation::relu) {
  site.name = path(name, names.conv);
  ConvNormPair pair;
  pair.conv = owner.register_module(names.conv, layers.conv(site));
  pair.norm = owner.register_module(names.norm, layers.norm({path(name, names.norm), site.out, activation}));
  return pair;
}

class ConvNorm : public torch::nn::Module {
 public:
  // `name`: the path of this pair in the network; `site`: the convolution, without a name.
  ConvNorm(LayerMaker& layers, const std::string& name, const ConvSite& site,
           Activation activation = Activation::relu, const ConvNormPair::Names& names = {"0", "1"})
      : pair_(add_pair(*this, layers, name, names, site, activation)) {}

  // As ConvNormPair has it.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
    return pair_.forward(std::move(x), std::move(residual), pass);
  }

 private:
  ConvNormPair pair_;
};

}  // namespace bnlab
