#include "harness/training/weight_ema.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "harness/support/mapped.hpp"

namespace bnlab {

WeightEma::WeightEma(double decay, std::vector<at::Tensor> weights, RunningStatistics* statistics)
    : decay_(decay), weights_(std::move(weights)), statistics_(statistics) {
  const at::NoGradGuard no_grad;
  averages_ = mapped(weights_, [](const at::Tensor& weight) { return weight.clone(); });
}

double WeightEma::decay_at(int64_t step) const {
  const auto k = static_cast<double>(step);
  return std::min(decay_, (1 + k) / (10 + k));
}

void WeightEma::update(int64_t step, StepBytes* bytes) {
  const at::NoGradGuard no_grad;
  if (weights_.empty()) return;
  const at::Device device = weights_.front().device();
  const auto of_step = [this](int64_t at) { return decay_at(at); };
  const at::Tensor decay = bytes != nullptr ? numbers_of_step(*bytes, {of_step}, at::kDouble, device)[0]
                                            : at::full({}, decay_at(step), at::kDouble);
  if (device.is_cpu()) {
    at::_foreach_lerp_(averages_, weights_, 1 - decay.item<double>());
  } else {  // no foreach operation interpolates by a number on the device
    const std::vector<at::Tensor> steps = at::_foreach_sub(weights_, averages_);
    if (bytes != nullptr)
      at::_foreach_mul_(steps, (1 - decay).to(weights_.front().scalar_type()));
    else
      at::_foreach_mul_(steps, 1 - decay.item<double>());
    at::_foreach_add_(averages_, steps);
  }
  if (statistics_ != nullptr) statistics_->update_average(decay);
}

void WeightEma::describe(State& state) {
  for (size_t i = 0; i < averages_.size(); ++i) state.tensor("weight_ema." + std::to_string(i), averages_[i]);
}

void WeightEma::swap() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor weight = weights_[i].clone();
    weights_[i].copy_(averages_[i]);
    averages_[i].copy_(weight);
  }
}

}  // namespace bnlab
