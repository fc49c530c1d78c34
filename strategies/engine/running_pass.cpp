#include "strategies/engine/running_pass.hpp"

#include <torch/types.h>

#include "strategies/engine/moments.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

// By one pair: dx = gamma s g.
class RunningPass : public NormPass {
 public:
  RunningPass(int64_t rows, std::shared_ptr<const Rules> rules, std::shared_ptr<SiteStatistics> statistics)
      : NormPass({0, rows}), rules_(std::move(rules)), statistics_(std::move(statistics)) {}

  kernels::Coefficients forward(const at::Tensor&, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const at::Tensor var = rules_->mean_only ? at::Tensor() : statistics_->var();
    forward_ = kernels::running_coefficients(statistics_->mean(), var, rules_->eps, weight, bias);
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::local_backward(incoming, forward_, /*through_moments=*/false, rules_->mean_only, weight);
  }

  NormFormula formula(const at::Tensor& x) const override {
    const at::Tensor scale = per_channel(forward_.invstd, x.dim());
    return {.normalised = (x - per_channel(forward_.mean, x.dim())) * scale, .scale = scale};
  }

 private:
  std::shared_ptr<const Rules> rules_;
  std::shared_ptr<SiteStatistics> statistics_;
};

// Each sample by a mixture.
class MixedPass : public NormPass {
 public:
  MixedPass(Sets samples, double own_share, std::shared_ptr<const Rules> rules,
            std::shared_ptr<SiteStatistics> statistics)
      : NormPass(samples.offsets),
        own_share_(own_share),
        rules_(std::move(rules)),
        statistics_(std::move(statistics)) {}

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const at::Tensor moments = kernels::moments(x, offsets());
    const Moments own(rules_->about_zero ? about_zero(moments) : moments);
    const at::Tensor distance = own.mean - statistics_->mean();
    const at::Tensor mean = statistics_->mean() + own_share_ * distance;
    at::Tensor var = own_share_ * own.var(/*ddof=*/0) +
                     own_share_ * (1 - own_share_) * distance.square();  // no use with mean_only
    if (statistics_->var().defined()) var = var + (1 - own_share_) * statistics_->var();
    const kernels::NormOptions options{
        .eps = rules_->eps, .mean_only = rules_->mean_only, .weight = weight, .bias = bias};
    forward_ = kernels::forward_coefficients(pack_moments(own.count, mean, var * own.count.clamp_min(1)),
                                             options, statistics_->mean().scalar_type());
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::local_backward(incoming, forward_, /*through_moments=*/false, rules_->mean_only, weight);
  }

  NormFormula formula(const at::Tensor&) const override { refuse_second_derivative(rules_->strategy); }

 private:
  double own_share_;
  std::shared_ptr<const Rules> rules_;
  std::shared_ptr<SiteStatistics> statistics_;
};

}  // namespace

c10::intrusive_ptr<NormPass> running_pass(const at::Tensor& x, const Pass& pass,
                                          std::shared_ptr<const Rules> rules,
                                          std::shared_ptr<SiteStatistics> statistics) {
  if (const double own_share = pass.details.own_share; own_share > 0) {
    return c10::make_intrusive<MixedPass>(
        sets_of(pass.towers, pass.rows_per_sample, positions_of(x), /*virtual_batch=*/1), own_share,
        std::move(rules), std::move(statistics));
  }
  return c10::make_intrusive<RunningPass>(x.size(0), std::move(rules), std::move(statistics));
}

}  // namespace bnlab
