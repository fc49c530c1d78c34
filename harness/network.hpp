// What a model is made of and what a strategy makes: layers, the sites they stand at, networks.
// Models never name a norm layer; they ask a LayerMaker for one at each site.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>

#include "harness/pass.hpp"

namespace bnlab {

// The precision of statistics, weights and biases for an input of this dtype.
constexpr at::ScalarType statistics_type(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
}

enum class Activation { none, relu };

// A place where normalisation may stand. Its name is the layer's path in the network ("encoder0.norm1"), so
// that the names of its parameters begin with it.
struct NormSite {
  std::string name;
  int64_t channels = 0;
  Activation activation = Activation::none;  // follows the norm (and the residual); always applied here
};

struct ConvSite {
  std::string name;
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  bool norm_follows = true;  // false: the convolution has a bias whatever the strategy
};

// One layer at a site: y = activation(norm(x) + residual), or a convolution (which takes no residual).
class Layer : public torch::nn::Module {
 public:
  // x: [rows, channels, ...], rows dealt to towers as `pass` says; residual: like x, or undefined.
  virtual at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) = 0;
};

class LayerMaker {
 public:
  virtual ~LayerMaker() = default;
  virtual std::shared_ptr<Layer> norm(const NormSite& site) = 0;
  // Default: a plain convolution, He-initialised from (seed, site name), with a bias only where no
  // norm follows.
  virtual std::shared_ptr<Layer> conv(const ConvSite& site) = 0;
};

// A network in two parts: a strategy may rearrange samples around `features`, never inside `head`.
class Network : public torch::nn::Module {
 public:
  virtual at::Tensor features(at::Tensor images, const Pass& pass) = 0;  // [n, 3, H, W] -> [n, F, H', W']
  virtual at::Tensor head(at::Tensor features, const Pass& pass) = 0;    // -> [n, classes, H, W]
};

}  // namespace bnlab
