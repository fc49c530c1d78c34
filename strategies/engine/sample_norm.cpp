#include "strategies/engine/sample_norm.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "harness/error.hpp"
#include "strategies/engine/norm_function.hpp"

namespace bnlab {
namespace {

class SamplePass : public NormPass {
 public:
  SamplePass(kernels::Offsets rows, int64_t groups, double eps, at::ScalarType statistics)
      : NormPass(std::move(rows)), groups_(groups), eps_(eps), statistics_(statistics) {}

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const at::Tensor moments = kernels::moments(x, offsets());
    channels_ = (moments.size(1) - 1) / 2;
    const at::Tensor positions = moments.narrow(1, 0, 1).unsqueeze(2);  // [n, 1, 1]
    const at::Tensor mean = by_group(moments.narrow(1, 1, channels_));  // [n, g, C/g]
    const at::Tensor m2 = by_group(moments.narrow(1, 1 + channels_, channels_));
    const at::Tensor group_mean = mean.mean(2, /*keepdim=*/true);
    const at::Tensor group_m2 = (m2 + positions * (mean - group_mean).square()).sum(2, /*keepdim=*/true);
    count_ = (positions * (channels_ / groups_)).clamp_min(1).to(statistics_);
    invstd_ = by_channel((group_m2 / count_ + eps_).rsqrt()).to(statistics_);
    mean_ = by_channel(group_mean).to(statistics_);
    const at::Tensor scale = weight.defined() ? invstd_ * weight : invstd_;
    const at::Tensor shift = bias.defined() ? bias.unsqueeze(0).expand_as(scale) : at::zeros_like(scale);
    return {mean_, invstd_, scale, shift, {}, {}, {}};
  }

  // With A, B the sums over a group's channels of gamma sum g and gamma sum g (x - m):
  // dx = s (gamma g - A/N - (x - m) s^2 B/N)
  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    const at::Tensor sums = incoming.sums(mean_);
    const at::Tensor a = sums.select(1, 0), b = sums.select(1, 1);  // [n, C]
    kernels::BackwardCoefficients k;
    k.dbias = a.sum(0);
    k.dweight = (b * invstd_).sum(0);
    k.mean = mean_;
    k.a = weight.defined() ? invstd_ * weight : invstd_;
    const auto group_sum = [&](const at::Tensor& s) {
      return by_channel(by_group(weight.defined() ? s * weight : s).sum(2, /*keepdim=*/true) / count_);
    };
    k.c = -invstd_ * group_sum(a);
    k.b = -invstd_.pow(3) * group_sum(b);
    return k;
  }

 private:
  at::Tensor by_group(const at::Tensor& t) const {
    return t.reshape({t.size(0), groups_, channels_ / groups_});
  }
  at::Tensor by_channel(const at::Tensor& t) const {  // [n, g, 1] -> [n, C]
    return t.expand({t.size(0), groups_, channels_ / groups_}).reshape({t.size(0), channels_});
  }

  int64_t groups_;
  double eps_;
  at::ScalarType statistics_;
  int64_t channels_ = 0;
  at::Tensor mean_, invstd_;  // [n, C]
  at::Tensor count_;          // [n, 1, 1]: elements of a group
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
    weight_ = register_parameter("weight", at::ones({site.channels}, statistics));
    bias_ = register_parameter("bias", at::zeros({site.channels}, statistics));
  }
}

// Every rank knows these sizes, so that all refuse together.
void SampleNorm::check_sizes(const at::Tensor& x, const Pass& pass) const {
  if (pass.mode == Mode::evaluate_saved || pass.mode == Mode::evaluate_batch ||
      pass.towers.total_samples() == 0) {
    return;
  }
  int64_t values = site_.channels / rules_.groups;
  for (int64_t d = 2; d < x.dim(); ++d) {
    values *= x.size(d);
  }
  if (values == 1) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " +
                                          site_.name + ", strategy " + rules_.strategy + ", set of 1)");
  }
}

at::Tensor SampleNorm::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  check_sizes(x, pass);
  kernels::Offsets rows(static_cast<size_t>(std::max<int64_t>(x.size(0), 1) + 1));
  std::iota(rows.begin(), rows.end(), 0);
  rows.back() = x.size(0);  // a rank without samples has one empty slice
  return apply_norm(x, residual, weight_, bias_, site_.activation,
                    c10::make_intrusive<SamplePass>(std::move(rows), rules_.groups, rules_.eps,
                                                    statistics_type(x.scalar_type())));
}

std::shared_ptr<Layer> SampleStrategy::norm(const NormSite& site) {
  const SampleNormRules rules{name_, groups(site), shared_.eps, shared_.affine};
  return std::make_shared<SampleNorm>(
      site, rules, at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype)));
}

void SampleOptions::describe(OptionVisitor& option) {
  option("eps", eps, "added to the variance under the root").above(0);
  option("affine", affine, "whether there are a weight and a bias per channel");
}

}  // namespace bnlab
