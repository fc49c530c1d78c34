#include "harness/training/weight_ema.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "harness/mapped.hpp"

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

void WeightEma::update(int64_t step) {
  const at::NoGradGuard no_grad;
  at::_foreach_lerp_(averages_, weights_, 1 - decay_at(step));
  if (statistics_ != nullptr) {
    statistics_->update_average(decay_at(step));
  }
}

void WeightEma::describe(State& state) {
  for (size_t i = 0; i < averages_.size(); ++i) {
    state.tensor("weight_ema." + std::to_string(i), averages_[i]);
  }
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
