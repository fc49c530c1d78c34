#include "harness/models/image_encoder.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/models/resize.hpp"

namespace bnlab {

void ImageEncoder::describe(OptionVisitor& option) {
  option.component("backbone", backbone, Backbone::kFamily, "what the features come from");
}

Channels ImageEncoder::norm_channels() const {
  return facts_of<BackboneFacts>(backbone).norm_channels(backbone);
}

int64_t ImageEncoder::features() const {
  return facts_of<BackboneFacts>(backbone).feature_channels(backbone).back();
}

std::shared_ptr<Trunk> ImageEncoder::build(LayerMaker& layers, const std::string& name) const {
  const int64_t undilated = std::ranges::max(facts_of<BackboneFacts>(backbone).output_strides(backbone));
  return Registered<Backbone>::create(backbone, {undilated})->build(layers, name);
}

at::Tensor encoded(Trunk& trunk, at::Tensor images, const Pass& pass) {
  return cell_means(trunk.forward(std::move(images), pass).back(), 1).flatten(1);
}

}  // namespace bnlab
