#include "harness/models/image_encoder.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/models/resize.hpp"

namespace bnlab {
namespace {

const About& entry_of(const Json& backbone) {
  return *find_registered(Backbone::kFamily, backbone.at("name").get<std::string>());
}

}  // namespace

void ImageEncoder::describe(OptionVisitor& option) {
  option.component("backbone", backbone, Backbone::kFamily, "what the features come from");
}

Channels ImageEncoder::norm_channels() const {
  return entry_of(backbone).norm_channels(backbone);
}

int64_t ImageEncoder::features() const {
  return entry_of(backbone).feature_channels(backbone).back();
}

std::shared_ptr<Trunk> ImageEncoder::build(LayerMaker& layers, const std::string& name) const {
  const int64_t undilated = std::ranges::max(entry_of(backbone).output_strides(backbone));
  return Registered<Backbone>::create(backbone, {undilated})->build(layers, name);
}

at::Tensor encoded(Trunk& trunk, at::Tensor images, const Pass& pass) {
  return cell_means(trunk.forward(std::move(images), pass).back(), 1).flatten(1);
}

}  // namespace bnlab
