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
  at::Tensor forward(Network& network, const Batch& batch, const Step& step, Mode mode) override {
    return base_->forward(network, batch, step, mode);
  }
  bool trainable(const std::string& parameter, const Step& step) const override {
    return base_->trainable(parameter, step);
  }
  bool has_running_statistics() const override { return true; }
  void before_eval(Network& network, const Population& population, Calibration& calibration) override {
    base_->before_eval(network, population, calibration);
  }
  void after_eval() override { base_->after_eval(); }
  void buffers_loaded() override { base_->buffers_loaded(); }
  void average_running(double decay) override { base_->average_running(decay); }
  void average_replicas() override { base_->average_replicas(); }
  int64_t nonfinite_channels() const override { return base_->nonfinite_channels(); }
  bool rows_travel() const override { return base_->rows_travel(); }
  std::vector<std::string> notes() const override { return base_->notes(); }
  std::vector<int64_t> permutation() const override { return base_->permutation(); }

 protected:
  Strategy& base() { return *base_; }
  const Strategy& base() const { return *base_; }

 private:
  std::unique_ptr<Strategy> base_;
};

// `base`, after a wrapper's own parameters.
std::vector<Parameter> wrapper_parameters(std::vector<Parameter> own);

}  // namespace bnlab
