#include "harness/models/pixel_network.hpp"

#include <torch/types.h>

#include "harness/models/building_blocks.hpp"

namespace bnlab {

void WithAuxiliary::describe(OptionVisitor& option) {
  OnBackbone::describe(option);
  option("auxiliary_weight", auxiliary_weight,
         "of the loss of an auxiliary head on the map before the last; 0: no such head")
      .at_least(0);
}

Channels WithAuxiliary::norm_channels() const {
  Channels channels = OnBackbone::norm_channels();
  if (auxiliary_weight > 0) channels.push_back(feature_channels()[3] / 4);
  return channels;
}

PixelHead::PixelHead(LayerMaker& layers, const std::string& name, const Shape& shape)
    : last_name_(path(name, shape.names[2])),
      dropout_{path(name, "3"), shape.dropout, shape.drops_channels},
      align_corners_(shape.align_corners) {
  const auto& [conv, norm, last] = shape.names;
  first_ = add_pair(*this, layers, name, {conv, norm}, {.in = shape.in, .out = shape.width});
  last_ = register_module(last, layers.conv({.name = last_name_,
                                             .in = shape.width,
                                             .out = shape.classes,
                                             .kernel = 1,
                                             .padding = 0,
                                             .norm_follows = false}));
}

at::Tensor PixelHead::features(const at::Tensor& x, const Pass& pass) {
  return recomputed({x}, pass, [this](const auto& inputs, const Pass& pass) {
    return first_.forward(inputs[0], {}, pass);
  });
}

at::Tensor PixelHead::logits(const at::Tensor& features, const Pass& pass) {
  const at::Tensor small = last_->forward(dropout(features, dropout_, pass), {}, pass);
  return bilinear(small, pass.details.image_size, align_corners_);
}

PixelNetwork::PixelNetwork(LayerMaker& layers, const OnBackbone& options)
    : trunk_(register_module("backbone", options.build(layers, "backbone"))) {}

void PixelNetwork::add_auxiliary(LayerMaker& layers, const WithAuxiliary& options, const std::string& name,
                                 PixelHead::Shape shape) {
  if (options.auxiliary_weight > 0) {
    auxiliary_weight_ = options.auxiliary_weight;
    shape.in = options.feature_channels()[3];
    shape.width = shape.in / 4;
    auxiliary_ = register_module(name, std::make_shared<PixelHead>(layers, name, shape));
  }
}

Network::Maps PixelNetwork::features(at::Tensor images, const Pass& pass) {
  const Maps maps = trunk_->forward(std::move(images), pass);
  Maps found = {head_->features(gathered(maps, pass), pass)};
  if (auxiliary_ && pass.as_in_training()) found.push_back(auxiliary_->features(maps[3], pass));
  return found;
}

Outputs PixelNetwork::head(const Maps& features, const Pass& pass) {
  Outputs outputs{head_->logits(features[0], pass)};
  if (features.size() > 1) {
    outputs.auxiliary = auxiliary_->logits(features[1], pass);
    outputs.auxiliary_weight = auxiliary_weight_;
  }
  return outputs;
}

Part PixelNetwork::part_of(const std::string& name) const {
  const auto begins_with = [&](const std::string& path) { return name.rfind(path + ".", 0) == 0; };
  const bool in_head = begins_with(head_->last()) || (auxiliary_ && begins_with(auxiliary_->last()));
  return in_head ? Part::head : begins_with("backbone") ? Part::backbone : Part::features;
}

}  // namespace bnlab
