// The interface of a model: it builds a network from a LayerMaker. One file per model, registered there.
#pragma once

#include <array>
#include <memory>

#include "harness/json.hpp"
#include "harness/network.hpp"

namespace bnlab {

class Model {
 public:
  static constexpr const char* kFamily = "model";
  struct Context {};

  virtual ~Model() = default;

  // Throws Error (refused) if the network cannot take images of this size.
  virtual void check_size(int64_t height, int64_t width) const = 0;
  virtual std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const = 0;
};

}  // namespace bnlab
