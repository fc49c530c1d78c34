// What a strategy of the BN family computes at a site, by its Rules, with s = 1 / sqrt(v + eps) over the set
// (a tower, a group of towers, a virtual batch):
//
//   forward    own moments -> exchange, where they are pooled -> coefficients -> y = gamma ((x - m) s r + d) + beta,
//              r = 1 and d = 0 but for batch renormalisation; then the running statistics take their part
//   backward   own sums of g and g (x - m) -> exchange, where they are pooled -> coefficients ->
//              dx = gamma r s (g - A/N - (x - m) s^2 B/N), A = sum g, B = sum g (x - m) over the set
//
// The sweeps over the activations and the coefficients are operations of kernels/ (coefficients.hpp); where nothing is
// exchanged between a sweep and its coefficients, they are one. On a GPU most sites take two kernels forward and two
// backward, or three and three beside their exchanges; `bnlab explain` counts them.
#include "strategies/engine/bn_layer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "harness/error.hpp"
#include "strategies/engine/moments.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/pooling.hpp"
#include "strategies/kernels/coefficients.hpp"

namespace bnlab {
namespace {

// An exchange that fails says which site waited for it.
template <class Exchange>
auto at_site(const std::string& site, const Exchange& exchange) {
  try {
    return exchange();
  } catch (const Error& e) {
    throw Error(e.kind(), "site " + site + ": " + e.what());
  }
}

// Normalises by the moments of the batch.
class BatchPass : public NormPass {
 public:
  BatchPass(const NormSite& site, const Rules& rules, const Pass& pass, const Sets& sets,
            const Strategy::Context& context, std::shared_ptr<SiteStatistics> statistics)
      : NormPass(sets.offsets),
        site_(site.name),
        rules_(rules),
        pass_(pass),
        sets_(sets),
        statistics_(std::move(statistics)) {
    if (rules.normalise_by == NormaliseBy::pooled) {
      pool_.emplace(rules, pass, sets, context);
    }
  }

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    if (!pool_) {
      const auto [rows, coefficients] =
          kernels::local_forward(x, offsets(), options(weight, bias), begin_step());
      forward_ = coefficients;
      remember(rows);
      return forward_;
    }
    const at::ScalarType precision = statistics_->mean().scalar_type();
    const at::Tensor own = kernels::moments(x, offsets());  // [S, 1 + 2C]
    const kernels::PooledRows met = at_site(site_, [&] { return pool_->moments(own, x, precision); });
    forward_ = kernels::pooled_forward(met, rules_.merge, options(weight, bias), precision, begin_step());
    if (rules_.merge == Merge::averaged) {
      own_mean_ = Moments(own).mean.to(precision);
    }
    remember(own);
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    if (rules_.gradient != Gradient::full || !pool_) {
      return about_own_mean(kernels::local_backward(incoming, forward_, rules_.gradient != Gradient::stopped,
                                                    rules_.mean_only, weight));
    }
    const at::Tensor own = incoming.sums(forward_.mean);  // [S, 2, C]
    const kernels::PooledRows met = at_site(site_, [&] { return pool_->sums(own, incoming); });
    return about_own_mean(kernels::pooled_backward(forward_, own, met, rules_.mean_only, weight));
  }

 private:
  std::optional<kernels::RunningUpdate> begin_step() {
    return pass_.mode == Mode::train ? statistics_->begin_step(sets_, pass_.towers) : std::nullopt;
  }

  void remember(const at::Tensor& own) {
    if (pass_.mode == Mode::calibrate) {
      statistics_->collect(own);
    } else if (pass_.mode == Mode::train) {
      at_site(site_, [&] { statistics_->remember(own, sets_, pass_.towers); });
    }
  }

  kernels::BackwardCoefficients about_own_mean(kernels::BackwardCoefficients k) const {
    if (own_mean_.defined()) {
      k.mean = own_mean_;  // the exact derivative of that forward pass is about the tower's own mean
    }
    return k;
  }

  kernels::NormOptions options(const at::Tensor& weight, const at::Tensor& bias) const {
    return {
        .eps = rules_.eps, .mean_only = rules_.mean_only, .weight = weight, .bias = bias, .renorm = renorm()};
  }

  // By the running statistics before this step's update.
  std::optional<kernels::Renormalisation> renorm() const {
    if (!rules_.renorm) {
      return std::nullopt;
    }
    const Renorm::Limits limits = rules_.renorm->limits(pass_.step.index);
    return kernels::Renormalisation{
        .running = statistics_->saved().pair(), .r_max = limits.r, .d_max = limits.d};
  }

  std::string site_;
  Rules rules_;
  Pass pass_;
  Sets sets_;
  std::shared_ptr<SiteStatistics> statistics_;
  std::optional<Pool> pool_;
  at::Tensor own_mean_;  // [S, C], with Merge::averaged
  kernels::Coefficients forward_;
};

// Normalises by the running statistics, which are constants: y = gamma (x - m) s + beta, dx = gamma s g.
class RunningPass : public NormPass {
 public:
  RunningPass(int64_t rows, const Rules& rules, std::shared_ptr<SiteStatistics> statistics)
      : NormPass({0, rows}), rules_(rules), statistics_(std::move(statistics)) {}

  kernels::Coefficients forward(const at::Tensor&, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    forward_ = kernels::running_coefficients(
        statistics_->mean(), rules_.mean_only ? at::Tensor() : statistics_->var(), rules_.eps, weight, bias);
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::local_backward(incoming, forward_, /*through_moments=*/false, rules_.mean_only, weight);
  }

 private:
  Rules rules_;
  std::shared_ptr<SiteStatistics> statistics_;
  kernels::Coefficients forward_;
};

int64_t positions(const at::Tensor& x) {  // elements per row and channel
  int64_t product = 1;
  for (int64_t d = 2; d < x.dim(); ++d) {
    product *= x.size(d);
  }
  return product;
}

void check_sizes(const std::string& site, const Rules& rules, const Pass& pass, const Sets& sets) {
  const bool pooled = rules.normalise_by == NormaliseBy::pooled;
  const auto elements = pooled ? sums_of_groups(sets.elements, rules.group(pass.towers)) : sets.elements;
  if (std::find(elements.begin(), elements.end(), 1) != elements.end()) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " + site +
                                          ", strategy " + rules.strategy + ", set of 1)");
  }
}

}  // namespace

BnLayer::BnLayer(const NormSite& site, const Rules& rules, const Strategy::Context& context)
    : site_(site), rules_(rules), context_(context) {
  const auto options = at::TensorOptions().device(context.device).dtype(statistics_type(context.dtype));
  if (rules.affine && !rules.mean_only) {
    weight_ = register_parameter("weight", at::ones({site.channels}, options));
    bias_ = register_parameter("bias", at::zeros({site.channels}, options));
  }
  const at::Tensor mean = register_buffer("running_mean", at::zeros({site.channels}, options));
  const at::Tensor var =
      rules.mean_only ? at::Tensor() : register_buffer("running_var", at::ones({site.channels}, options));
  statistics_ = std::make_shared<SiteStatistics>(rules, context, mean, var);
}

at::Tensor BnLayer::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  Rules rules = rules_;
  const bool training = pass.mode == Mode::train || pass.mode == Mode::calibrate;
  if (!training && pass.mode != Mode::evaluate_batch) {
    return apply_norm(x, residual, weight_, bias_, site_.activation,
                      c10::make_intrusive<RunningPass>(x.size(0), rules, statistics_));
  }
  if (!training) {
    rules.renorm.reset();  // it would bring the running statistics in
  }
  const Sets sets = sets_of(pass, positions(x), rules.virtual_batch);
  if (training) {
    check_sizes(site_.name, rules, pass, sets);
  }
  return apply_norm(x, residual, weight_, bias_, site_.activation,
                    c10::make_intrusive<BatchPass>(site_, rules, pass, sets, context_, statistics_));
}

}  // namespace bnlab
