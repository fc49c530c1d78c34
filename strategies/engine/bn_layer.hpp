// The BN family's layer at one site. What it computes, forward and backward, is bn_layer.cpp, top to bottom.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "harness/strategy.hpp"
#include "harness/writable_layer.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/running_statistics.hpp"

namespace bnlab {

class NormPass;

class BnLayer : public WritableLayer {
 public:
  // What `context` borrows outlives the layer. Parameters and pairs are in the statistics' precision of
  // context.dtype.
  BnLayer(const NormSite& site, std::shared_ptr<const Rules> rules, const Strategy::Context& context);

  // Throws Error (refused) as check_pass does, before any exchange.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;

  void replace(const std::string& name, const at::Tensor& tensor) override;
  void set_eps(double eps) override;
  void set_momentum(std::optional<double> momentum) override;

  const std::shared_ptr<SiteStatistics>& statistics() const { return statistics_; }

 protected:
  // One pass by the moments of the batch.
  virtual c10::intrusive_ptr<NormPass> batch_pass(const at::Tensor& x, const Pass& pass);
  const std::string& name() const { return site_.name; }
  const std::shared_ptr<const Rules>& rules() const { return rules_; }

 private:
  NormSite site_;
  std::shared_ptr<const Rules> rules_;
  Strategy::Context context_;
  std::shared_ptr<SiteStatistics> statistics_;
};

}  // namespace bnlab
