#include "harness/inference/folded_layers.hpp"

#include "harness/affine.hpp"
#include "harness/convolution.hpp"

namespace bnlab {
namespace {

const Pass& evaluation() {
  static const Pass pass{.towers = Towers({2}, 1, 0), .step = {}, .mode = Mode::evaluate_saved};
  return pass;
}

std::optional<Affine> evaluated(const MadeLayer& norm) {
  return affine_of([&](const at::Tensor& x,
                       const at::Tensor& residual) { return norm.layer->forward(x, residual, evaluation()); },
                   norm.channels, at::kCPU);
}

// What a convolution adds to each channel.
at::Tensor added_by(const MadeLayer& conv) {
  const int64_t side = conv.conv->dilation * (conv.conv->kernel - 1) + 1;
  const at::Tensor nothing = at::zeros({2, conv.conv->in, side, side}, at::kDouble);
  return conv.layer->forward(nothing, {}, evaluation()).select(0, 0).select(1, 0).select(1, 0);
}

}  // namespace

std::shared_ptr<Layer> LayerRecorder::norm(const NormSite& site) {
  made_.push_back({site.name, site.channels, layers_.norm(site)});
  return made_.back().layer;
}

std::shared_ptr<Layer> LayerRecorder::conv(const ConvSite& site) {
  made_.push_back({.name = site.name, .channels = site.out, .layer = layers_.conv(site), .conv = site});
  return made_.back().layer;
}

FoldedLayers folded_layers(const std::vector<MadeLayer>& made) {
  const at::NoGradGuard no_grad;
  FoldedLayers folded;
  const auto stay = [&](const MadeLayer& layer, const std::string& why) {
    folded.staying += (folded.staying.empty() ? "" : ", ") + layer.name + " " + why;
  };
  const MadeLayer* before = nullptr;
  for (const MadeLayer& layer : made) {
    const auto* conv = dynamic_cast<const Convolution*>(layer.layer.get());
    if (layer.conv && conv == nullptr) {
      stay(layer, "shows no filters");
    } else if (layer.conv) {
      folded.tensors[layer.name + ".weight"] = conv->filters();
      folded.tensors[layer.name + ".bias"] = added_by(layer);
    } else if (before == nullptr || !before->conv || !before->conv->norm_follows ||
               before->channels != layer.channels) {
      stay(layer, "has no convolution just before it");
    } else if (const auto affine = evaluated(layer); !affine) {
      stay(layer, "depends on its input");
    } else if (folded.tensors.contains(before->name + ".weight")) {
      at::Tensor &weight = folded.tensors[before->name + ".weight"],
                 &bias = folded.tensors[before->name + ".bias"];
      weight = weight * affine->scale.view({-1, 1, 1, 1});
      bias = bias * affine->scale + affine->shift;
      ++folded.norms;
    }
    before = &layer;
  }
  return folded;
}

}  // namespace bnlab
