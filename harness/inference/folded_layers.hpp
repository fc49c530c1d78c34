// Convolutions with what the norms behind them do in an evaluation, where that is a scale and a shift per
// channel.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/network.hpp"

namespace bnlab {

// A layer that a network has asked for.
struct MadeLayer {
  std::string name;
  int64_t channels;
  std::shared_ptr<Layer> layer;
  std::optional<ConvSite> conv = {};  // nothing: a norm
};

// Hands out the layers of another and lists them on the way.
class LayerRecorder : public LayerMaker {
 public:
  LayerRecorder(LayerMaker& layers, std::vector<MadeLayer>& made) : layers_(layers), made_(made) {}
  std::shared_ptr<Layer> norm(const NormSite& site) override;
  std::shared_ptr<Layer> conv(const ConvSite& site) override;

 private:
  LayerMaker& layers_;
  std::vector<MadeLayer>& made_;
};

struct FoldedLayers {
  std::map<std::string, at::Tensor> tensors;  // NAME.weight and NAME.bias of every convolution, float64
  int64_t norms = 0;                          // in them
  std::string staying;                        // "a depends on its input, b has no convolution just before it"
};

// made: float64, on the CPU, in order: the norm behind a convolution comes next.
FoldedLayers folded_layers(const std::vector<MadeLayer>& made);

}  // namespace bnlab
