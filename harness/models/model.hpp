// The interface of a model: it builds a network from a LayerMaker. One file per model, registered there.
#pragma once

#include <memory>

#include "harness/components/registry.hpp"
#include "harness/network.hpp"

namespace bnlab {

class Model {
 public:
  static constexpr const char* kFamily = "model";
  struct Context {
    ImageSizes image_sizes = {};  // that the network will be given
    // Of parameters that the model makes itself, beside those of the layers that it is given:
    uint64_t seed = 0;                          // of their initial values
    at::TensorOptions parameters = at::kFloat;  // their dtype and device

    RunOutline outline() const { return {.image_sizes = image_sizes}; }
  };

  virtual ~Model() = default;

  // Registered<Model>::create has refused image sizes that the network cannot take.
  virtual std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const = 0;
};

}  // namespace bnlab
