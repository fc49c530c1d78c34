// A network of one site: how a strategy is applied where no network surrounds its layer.
#pragma once

#include <memory>
#include <utility>

#include "harness/network.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

class OneSite : public Network {
 public:
  // `residual`: as Layer::forward takes it, of the one batch that the network is then for.
  explicit OneSite(std::shared_ptr<Layer> layer, at::Tensor residual = {})
      : layer_(register_module("site", std::move(layer))), residual_(std::move(residual)) {}

  Maps features(at::Tensor x, const Pass& pass) override {
    if (residual_.defined() && !pass.details.rows.empty()) {
      throw Error(
          Error::Kind::refused,
          "this strategy moves rows between towers and a residual would not follow them; add it behind "
          "the layer");
    }
    return {layer_->forward(std::move(x), residual_, pass)};
  }
  Outputs head(const Maps& features, const Pass&) override { return {features.front()}; }
  const Layer& layer() const { return *layer_; }

 private:
  std::shared_ptr<Layer> layer_;
  at::Tensor residual_;
};

}  // namespace bnlab
