// From images to one vector each: any backbone, without dilation, and the mean of its last map over all
// positions. Models that answer for images or clips stand on it.
#pragma once

#include <memory>
#include <string>

#include "harness/models/backbone.hpp"

namespace bnlab {

struct ImageEncoder {
  Json backbone = "resnet";

  void describe(OptionVisitor& option);

  Channels norm_channels() const;
  int64_t features() const;  // length of the vector
  // `name`: as Backbone::build has it.
  std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const;
};

// images: [rows, 3, H, W]; result: [rows, features].
at::Tensor encoded(Trunk& trunk, at::Tensor images, const Pass& pass);

}  // namespace bnlab
