#include "harness/models/backbone.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/models/building_blocks.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {

void OnBackbone::describe(OptionVisitor& option) {
  option.component("backbone", backbone, Backbone::kFamily, "what the features come from");
  option(
      "output_stride", output_stride,
      "how many times smaller than the image the backbone's last map is; dilation takes the place of strides")
      .at_least(8)
      .at_most(32);
}

void OnBackbone::check(const RunOutline&, Problems& problems) const {
  const std::vector<int64_t> known = facts_of<BackboneFacts>(backbone).output_strides(backbone);
  if (std::ranges::max(known) < 8) {
    problems.add("backbone", "expected one with maps at 1/8 of the image or smaller, got " +
                                 shown(backbone.at("name")) +
                                 ", which is for models that answer for images or clips");
    return;
  }
  if (std::ranges::find(known, output_stride) == known.end()) {
    const auto text = [](int64_t stride) { return std::to_string(stride); };
    problems.add("output_stride", "expected " + joined(mapped(known, text), " or ") + " on the backbone " +
                                      shown(backbone.at("name")) + ", got " + text(output_stride));
  }
}

Channels OnBackbone::feature_channels() const {
  return facts_of<BackboneFacts>(backbone).feature_channels(backbone);
}

Channels OnBackbone::norm_channels() const {
  return facts_of<BackboneFacts>(backbone).norm_channels(backbone);
}

std::shared_ptr<Trunk> OnBackbone::build(LayerMaker& layers, const std::string& name) const {
  return Registered<Backbone>::create(backbone, {output_stride})->build(layers, name);
}

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
