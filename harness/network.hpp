// What a model is made of and what a strategy makes: layers, the sites they stand at, networks.
// Models never name a norm layer; they ask a LayerMaker for one at each site.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/activation.hpp"
#include "harness/pass.hpp"

namespace bnlab {

// A place where normalisation may stand. Its name is the layer's path in the network ("encoder0.norm1"), so
// that the names of its parameters begin with it.
struct NormSite {
  std::string name;
  int64_t channels = 0;
  Activation activation = Activation::none;  // follows the norm (and the residual); always applied here
};

// What the variance of a convolution's initial weights is 2 divided by (He et al. 2015): the inputs of an
// output, or the outputs of an input.
enum class Fan { in, out };

struct ConvSite {
  std::string name = {};
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  int64_t dilation = 1;
  bool norm_follows = true;  // false: the convolution has a bias whatever the strategy
  bool bias = false;         // true: it has one even where a norm follows, as the published network has
  Fan fan = Fan::in;
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

// What a network answers: of pixels [n, classes, H, W], of images or clips [samples, classes].
struct Outputs {
  at::Tensor logits;
  // Logits of an auxiliary head, like `logits`, and what its loss is multiplied with before it is added;
  // undefined where the network has none, and in evaluation.
  at::Tensor auxiliary = {};
  double auxiliary_weight = 0;
  // The row of the global batch that stood at each place while the features were computed; empty where none
  // has moved.
  std::vector<int64_t> permutation = {};
};

// The parts of a network, by which weights are loaded.
enum class Part { backbone, features, head };

// A network in two parts: a strategy may rearrange rows around `features`, never inside `head`. All norm
// sites stand in `features`.
class Network : public torch::nn::Module {
 public:
  using Maps = std::vector<at::Tensor>;  // each [n, F, H', W']

  virtual Maps features(at::Tensor images, const Pass& pass) = 0;  // images: [n, 3, H, W]
  virtual Outputs head(const Maps& features, const Pass& pass) = 0;

  // Where a parameter or buffer belongs: to the backbone, if the network is built on one; to the head, whose
  // shapes depend on the classes; or to the features between them. Here by the beginning of its name.
  virtual Part part_of(const std::string& name) const;
};

}  // namespace bnlab
