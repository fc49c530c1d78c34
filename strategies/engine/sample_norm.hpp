// Normalisation inside each sample, over groups of channels (group, layer and instance norm): no batch, no
// towers, no running statistics, no exchange. The kernels' slices are single rows here.
//   y = gamma (x - m_ng) / sqrt(v_ng + eps) + beta, moments of sample n over group g's channels and positions
#pragma once

#include <string>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"
#include "harness/writable_layer.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// Every sample of x a slice of its own; a rank without samples has one empty slice.
kernels::Offsets rows_of_samples(const at::Tensor& x);
// Throws Error (refused) where, in training, `channels` channels of one sample have a single value. Every
// rank knows these sizes, so that all refuse together.
void check_values_per_channel(const NormSite& site, const std::string& strategy, int64_t channels,
                              const at::Tensor& x, const Pass& pass);

struct SampleNormRules {
  std::string strategy;  // for messages
  int64_t groups = 1;
  double eps = 1e-5;
  bool affine = true;
};

class SampleNorm : public WritableLayer {
 public:
  // The parameters, weight and bias [C] with affine, have the options `statistics`. Throws Error (refused)
  // unless the groups divide the site's channels.
  SampleNorm(const NormSite& site, const SampleNormRules& rules, const at::TensorOptions& statistics);
  // Throws Error (refused) where, in training, a group of one sample has a single value.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;
  void set_eps(double eps) override { rules_.eps = eps; }

 private:
  NormSite site_;
  SampleNormRules rules_;
};

// The options that every member takes, after its own.
struct SampleOptions {
  double eps = 1e-5;
  bool affine = true;

  void describe(OptionVisitor& option);
};

// A member says into how many groups it cuts the channels of a site.
class SampleStrategy : public Strategy {
 public:
  using Options = SampleOptions;
  SampleStrategy(std::string name, const SampleOptions& options, const Context& context)
      : Strategy(context), name_(std::move(name)), shared_(options) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override;
  StepWork work(const Step&) const override { return {}; }

 protected:
  virtual int64_t groups(const NormSite& site) const = 0;

 private:
  std::string name_;  // for messages
  SampleOptions shared_;
};

}  // namespace bnlab
