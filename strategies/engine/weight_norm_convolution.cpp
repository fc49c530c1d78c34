#include "strategies/engine/weight_norm_convolution.hpp"

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <limits>
#include <sstream>

#include "harness/communicator/communicator.hpp"
#include "harness/recomputation.hpp"
#include "harness/support/error.hpp"
#include "strategies/engine/moments.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

at::Tensor per_filter(const at::Tensor& values) {  // [out] -> [out, 1, 1, 1]
  return values.view({-1, 1, 1, 1});
}

// v, whose filters are contiguous, with norms `gain`.
at::Tensor with_norms(const at::Tensor& v, const at::Tensor& gain) {
  if (v.is_cuda() && v.scalar_type() == at::kDouble)  // LibTorch's kernel is float32's there, off by 4e-8
    return v * per_filter(gain / v.flatten(1).norm(2, 1));
  return at::_weight_norm(v, per_filter(gain));
}

}  // namespace

WeightNormConvolution::WeightNormConvolution(const ConvSite& site, const at::Tensor& v,
                                             std::optional<double> init_scale, std::shared_ptr<Layer> centre,
                                             Communicator& communicator)
    : site_(site), init_scale_(init_scale), centre_(std::move(centre)), communicator_(communicator) {
  v_ = register_parameter("v", v);
  gain_ = register_parameter("gain", norm().detach().clone());
  bias_ = register_parameter("bias", at::zeros({site.out}, v.options()));
  if (centre_)  // part of this layer, so that its running mean goes by the convolution's name
    register_buffer("running_mean", centre_->named_buffers()["running_mean"]);
}

at::Tensor WeightNormConvolution::forward(at::Tensor x, at::Tensor, const Pass& pass) {
  const bool training = pass.mode == Mode::train || pass.mode == Mode::train_frozen;
  const bool repeats = pass.details.kept != nullptr && pass.details.kept->repeats();
  const bool begins = pass.step.index == 0 && pass.micro_batch.is_first() && !repeats;
  if (init_scale_ && training && begins && pass.towers.total_samples() > 0) initialise(x);
  const at::Tensor w = filters().to(x.scalar_type());
  if (!centre_) return site_.convolved(x, w, bias_.to(x.scalar_type()));
  const at::Tensor y = centre_->forward(site_.convolved(x, w, {}), {}, pass);
  return y + bias_.to(y.scalar_type()).view({1, -1, 1, 1});
}

// In the layout of v, without a copy.
at::Tensor WeightNormConvolution::filters() const {
  return v_.is_contiguous() ? with_norms(v_, gain_)
                            : with_norms(v_.permute({0, 2, 3, 1}), gain_).permute({0, 3, 1, 2});
}

at::Tensor WeightNormConvolution::norm() const {
  return v_.flatten(1).norm(2, 1);
}

// In the parameters' precision, even where the run computes in bfloat16. All ranks get here together (a rank
// without samples too) and see the same bits, so that they go on or refuse alike.
void WeightNormConvolution::initialise(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor direction = v_ / per_filter(norm());
  const at::Tensor t = site_.convolved(x.to(v_.scalar_type()), direction, {});
  const at::Tensor all = communicator_.all_gather(kernels::moments(t, {0, t.size(0)}), Purpose::control);
  const Moments batch(kernels::merge_moments(all.flatten(0, 1), all.size(0)));
  const at::Tensor mean = batch.mean[0], deviation = (batch.m2[0] / batch.count[0]).sqrt();
  check_spread(mean, deviation);
  gain_.copy_(*init_scale_ / deviation);
  bias_.copy_(centre_ ? at::zeros_like(mean) : -mean * *init_scale_ / deviation);
}

// A constant unit has a deviation of 0, or what rounding makes of it.
void WeightNormConvolution::check_spread(const at::Tensor& mean, const at::Tensor& deviation) const {
  const double rounding = v_.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                          : std::numeric_limits<float>::epsilon();
  const at::Tensor usable = (deviation > 4 * rounding * mean.abs()).logical_and(deviation.isfinite());
  if (usable.all().item<bool>()) return;
  const auto channel = usable.logical_not().nonzero()[0].item<int64_t>();
  std::ostringstream message;
  message << "weight_norm: the initialisation from data needs output channels that vary, but channel "
          << channel << " of site " << site_.name << " has standard deviation "
          << deviation[channel].item<double>() << " and mean " << mean[channel].item<double>()
          << " over the first batch; init \"none\" starts without data";
  throw Error(Error::Kind::refused, message.str());
}

}  // namespace bnlab
