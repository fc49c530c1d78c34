// A strategy around another one: everything is the base's, but for what a wrapper overrides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class Wrapper : public Strategy {
 public:
  // Makes options["base"]. Throws Error (refused) for a base without running statistics.
  Wrapper(const Json& options, const Context& context);

  std::shared_ptr<Layer> norm(const NormSite& site) override { return base_->norm(site); }
  std::shared_ptr<Layer> conv(const ConvSite& site) override { return base_->conv(site); }
  at::Tensor forward(Network& network, const at::Tensor& images, const Pass& pass) override {
    return base_->forward(network, images, pass);
  }
  bool trainable(const std::string& parameter, const Step& step) const override {
    return base_->trainable(parameter, step);
  }
  RunningStatistics* running_statistics() override { return base_->running_statistics(); }
  Travel travel() const override { return base_->travel(); }
  std::vector<std::string> notes() const override { return base_->notes(); }

 private:
  std::unique_ptr<Strategy> base_;
};

// `base`, after a wrapper's own parameters.
std::vector<Parameter> wrapper_parameters(std::vector<Parameter> own);

}  // namespace bnlab
