// What networks are built of beside a strategy's own layers: a convolution with its norm, residual
// stages, dropout, linear layers, and maps brought to other sizes.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "harness/models/model.hpp"
#include "harness/network.hpp"
#include "harness/pass.hpp"
#include "harness/recomputation.hpp"
#include "harness/support/random.hpp"

namespace bnlab {

// "name.part", or the part alone where there is no name.
inline std::string path(const std::string& name, const std::string& part) {
  return name.empty() ? part : name + "." + part;
}

// A convolution, the norm behind it and an activation, registered under the names that the published network
// gives them: as two modules of a module that has more (add_pair), or as a module of their own (ConvNorm).
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

// Pairs one behind the other.
inline at::Tensor in_turn(const std::vector<ConvNormPair>& pairs, at::Tensor x, const Pass& pass) {
  for (const ConvNormPair& pair : pairs) x = pair.forward(std::move(x), {}, pass);
  return x;
}

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

  // As ConvNormPair has it; a block of its own (recomputation.hpp) where it is no part of one.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const Pass& pass) {
    return recomputed({x, residual}, pass, [this](const auto& inputs, const Pass& pass) {
      return pair_.forward(inputs[0], inputs[1], pass);
    });
  }

 private:
  ConvNormPair pair_;
};

// Dropout whose masks depend on the seed, the step, the row and the place in the network alone: never on the
// placement, nor on how a strategy has moved rows (Srivastava et al. 2014; of whole channels: Tompson et al.
// 2015).
struct Dropout {
  std::string name;  // the layer's path in the network
  // In [0, 1): of a value, or a channel, to become 0; the others grow by 1 / (1 - probability).
  double probability = 0;
  bool whole_channels = false;  // instead of single values
};

// x: [rows of this rank, C, ...]. In evaluation it stays as it is.
at::Tensor dropout(const at::Tensor& x, const Dropout& what, const Pass& pass);

// What networks for classification end in: parameters that no strategy makes, with the names and the
// initial values of torch.nn, drawn by (seed, name). uniform_weights are from U(-bound, bound). `name`:
// the parameter's path in the network.
inline at::Tensor uniform_weights(const Model::Context& context, const std::string& name,
                                  at::IntArrayRef sizes, double bound) {
  at::Tensor weights = at::empty(sizes, at::kDouble);
  Stream stream(context.seed, "weights/" + name);
  double* values = weights.mutable_data_ptr<double>();
  for (int64_t i = 0; i < weights.numel(); ++i) values[i] = stream.uniform(-bound, bound);
  return weights.to(context.parameters);
}

class Linear : public torch::nn::Module {
 public:
  Linear(const Model::Context& context, const std::string& name, int64_t in, int64_t out) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    weight_ = register_parameter("weight", uniform_weights(context, name + ".weight", {out, in}, bound));
    bias_ = register_parameter("bias", uniform_weights(context, name + ".bias", {out}, bound));
  }

  // [n, in] -> [n, out]
  at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight_, bias_); }

 private:
  at::Tensor weight_, bias_;
};

// How a map is brought to the size of another. `corners`: the centres of the corner pixels fall on each
// other (align_corners in PyTorch).
enum class Resizing { nearest, bilinear, bilinear_corners };

// Bilinear, x [n, C, h, w] to [n, C, size]. A rank without samples has nothing to compute, and not every
// kernel for GPUs may be launched over it; that for nearest neighbours may.
inline at::Tensor bilinear(const at::Tensor& x, at::IntArrayRef size, bool corners) {
  return x.size(0) == 0 ? at::upsample_nearest2d(x, size) : at::upsample_bilinear2d(x, size, corners);
}

// x [n, C, h, w] with the height, width and memory layout of `like`. It needs no float32, in which autocast
// on GPUs would do it. A single position is copied: the layout of such a map is ambiguous, and ATen would
// take its slowest way.
inline at::Tensor resized(const at::Tensor& x, const at::Tensor& like, Resizing how) {
  const std::array<int64_t, 2> size{like.size(2), like.size(3)};
  if (x.size(2) == size[0] && x.size(3) == size[1]) return x;
  if (x.size(2) == 1 && x.size(3) == 1)
    return x.expand({-1, -1, size[0], size[1]}).contiguous(like.suggest_memory_format());
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return how == Resizing::nearest ? at::upsample_nearest2d(x, size)
                                  : bilinear(x, size, how == Resizing::bilinear_corners);
}

// The means of x [n, C, h, w] over cells x cells parts of the image that overlap where the sizes do not
// divide (adaptive_avg_pool2d in PyTorch), [n, C, cells, cells]. The gradient has the layout of x; that of
// ATen's mean of the whole image is always contiguous, and every layer before would have to work in another
// layout than it was given.
inline at::Tensor cell_means(const at::Tensor& x, int64_t cells) {
  if (x.size(0) == 0)  // as in bilinear()
    return at::upsample_nearest2d(x, {cells, cells});
  if (cells == 1 && x.suggest_memory_format() == at::MemoryFormat::ChannelsLast)
    return x.permute({0, 2, 3, 1}).mean({1, 2}).view({x.size(0), x.size(1), 1, 1});
  return at::adaptive_avg_pool2d(x, {cells, cells});
}

// Residual blocks one behind another, named "0", "1", ... as torchvision names them.
template <class Block>
class ResidualStage : public torch::nn::Module {
 public:
  // `make`: (place, path in the network) -> std::shared_ptr<Block>. `name`: the path of the stage.
  template <class Make>
  ResidualStage(const std::string& name, int64_t blocks, Make make) {
    for (int64_t b = 0; b < blocks; ++b) {
      const std::string n = std::to_string(b);
      blocks_.push_back(register_module(n, make(b, name + "." + n)));
    }
  }

  at::Tensor forward(at::Tensor x, const Pass& pass) {
    for (const auto& block : blocks_) {
      x = recomputed({x}, pass, [&block = *block](const auto& inputs, const Pass& pass) {
        return block.forward(inputs[0], pass);
      });
    }
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace bnlab
