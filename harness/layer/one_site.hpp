// A network of one site: how a strategy is applied where no network surrounds its layer.
#pragma once

#include <memory>
#include <utility>

#include "harness/network.hpp"

namespace bnlab {

class OneSite : public Network {
 public:
  explicit OneSite(std::shared_ptr<Layer> layer) : layer_(register_module("site", std::move(layer))) {}
  Maps features(at::Tensor x, const Pass& pass) override { return {layer_->forward(std::move(x), {}, pass)}; }
  Outputs head(const Maps& features, const Pass&) override { return {features.front()}; }
  const Layer& layer() const { return *layer_; }

 private:
  std::shared_ptr<Layer> layer_;
};

}  // namespace bnlab
