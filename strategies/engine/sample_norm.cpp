#include "strategies/engine/sample_norm.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "harness/support/error.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

class SamplePass : public NormPass {
 public:
  SamplePass(kernels::Offsets rows, int64_t groups, double eps, at::ScalarType statistics)
      : NormPass(std::move(rows)), groups_(groups), eps_(eps), statistics_(statistics) {}

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    forward_ =
        kernels::sample_forward(kernels::moments(x, offsets()), groups_, eps_, weight, bias, statistics_);
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::sample_backward(forward_, incoming.sums(forward_.mean), groups_, weight);
  }

  NormFormula formula(const at::Tensor& x) const override {
    const auto mean = [groups = groups_](const at::Tensor& t) {
      if (t.numel() == 0) return t;
      const at::Tensor parts = t.reshape({t.size(0), groups, -1});
      return parts.mean(2, /*keepdim=*/true).expand_as(parts).reshape(t.sizes());
    };
    const at::Tensor centred = x - mean(x), scale = (mean(centred.square()) + eps_).rsqrt();
    return {.normalised = centred * scale, .scale = scale, .mean = mean};
  }

 private:
  int64_t groups_;
  double eps_;
  at::ScalarType statistics_;
};

}  // namespace

SampleNorm::SampleNorm(const NormSite& site, const SampleNormRules& rules,
                       const at::TensorOptions& statistics)
    : site_(site), rules_(rules) {
  if (site.channels % rules.groups != 0) {
    throw Error(Error::Kind::refused, rules.strategy + ": " + std::to_string(rules.groups) +
                                          " groups do not divide the " + std::to_string(site.channels) +
                                          " channels of site " + site.name);
  }
  if (rules.affine) {
    register_parameter("weight", at::ones({site.channels}, statistics));
    register_parameter("bias", at::zeros({site.channels}, statistics));
  }
}

void check_values_per_channel(const NormSite& site, const std::string& strategy, int64_t channels,
                              const at::Tensor& x, const Pass& pass) {
  if (pass.mode == Mode::evaluate_saved || pass.mode == Mode::evaluate_batch) return;
  for (int64_t t = 0; t < pass.towers.count(); ++t) {
    if (pass.towers.samples(t) > 0 && channels * pass.towers.positions(t, positions_of(x)) == 1) {
      throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " +
                                            site.name + ", strategy " + strategy + ", set of 1)");
    }
  }
}

kernels::Offsets rows_of_samples(const at::Tensor& x) {
  kernels::Offsets rows(static_cast<size_t>(std::max<int64_t>(x.size(0), 1) + 1));
  std::iota(rows.begin(), rows.end(), 0);
  rows.back() = x.size(0);
  return rows;
}

at::Tensor SampleNorm::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  check_values_per_channel(site_, rules_.strategy, site_.channels / rules_.groups, x, pass);
  return apply_norm(x, residual, parameter("weight"), parameter("bias"), site_.activation,
                    c10::make_intrusive<SamplePass>(rows_of_samples(x), rules_.groups, rules_.eps,
                                                    statistics_type(x.scalar_type())),
                    pass);
}

std::shared_ptr<Layer> SampleStrategy::norm(const NormSite& site) {
  const SampleNormRules rules{
      .strategy = name_, .groups = groups(site), .eps = shared_.eps, .affine = shared_.affine && site.affine};
  return std::make_shared<SampleNorm>(
      site, rules, at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype)));
}

void SampleOptions::describe(OptionVisitor& option) {
  option("eps", eps, "added to the variance under the root").above(0);
  option("affine", affine, "whether there are a weight and a bias per channel");
}

}  // namespace bnlab
