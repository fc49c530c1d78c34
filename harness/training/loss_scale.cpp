#include "harness/training/loss_scale.hpp"

namespace bnlab {

LossScale::LossScale(const LossScaling& options, at::Device device)
    : options_(options),
      scale_(at::full({1}, options.start, at::TensorOptions(device).dtype(at::kFloat))),
      growth_(at::zeros({1}, at::TensorOptions(device).dtype(at::kInt))) {}

bool LossScale::unscale(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  at::Tensor found = at::zeros({1}, scale_.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale_.reciprocal());
  at::_amp_update_scale_(scale_, growth_, found, options_.growth, options_.backoff, options_.interval);
  const bool finite = found.item<float>() == 0;
  skipped_ += finite ? 0 : 1;
  return finite;
}

void LossScale::describe(State& state) {
  state.tensor("loss_scale.scale", scale_);
  const at::Tensor growth = growth_.to(at::kLong);  // as checkpoints hold integers
  state.tensor("loss_scale.growth", growth);
  growth_.copy_(growth);
  state.value("loss_scale.skipped", skipped_);
}

Json LossScale::summary() const {
  return {{"scale", scale_.item<float>()}, {"skipped_steps", skipped_}};
}

}  // namespace bnlab
