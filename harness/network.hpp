// What a model is made of and what a strategy makes: layers, the sites they stand at, networks.
// Models never name a norm layer; they ask a LayerMaker for one at each site.
#pragma once

#include <c10/util/accumulate.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
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
  // Of a network that brings its norms along: what its own batch norm has here. Strategies of that family
  // take these numbers instead of their options'; without affine no strategy has a weight and a bias here.
  std::optional<double> eps = {};
  std::optional<double> momentum = {};
  bool affine = true;
};

// Elements per row and channel of a site's input, [rows, C, ...].
inline int64_t positions_of(const at::Tensor& x) {
  return c10::multiply_integers(x.sizes().slice(2));
}

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
  // Of a network that brings its convolutions along: the weight that this one starts from, and how it is
  // computed from x, a weight and a bias (or none), whatever its groups and its shape are.
  at::Tensor weight = {};
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)> compute =
      {};

  at::Tensor convolved(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    return compute ? compute(x, w, b) : at::conv2d(x, w, b, stride, padding, dilation);
  }
  bool has_bias() const { return bias || (!norm_follows && !compute); }
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

  // Whether the optimizer may change this parameter, as far as the network goes.
  virtual bool trainable(const std::string& /*parameter*/) const { return true; }
  // Whether its sites' buffers hold running statistics from which those of a run go on.
  virtual bool brings_statistics() const { return false; }
  // Why no training step can be replayed as a CUDA graph; "" where they can.
  virtual std::string why_not_replayed() const { return ""; }
  // What a record must say of it.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace bnlab
