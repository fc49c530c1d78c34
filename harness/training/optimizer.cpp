#include "harness/training/optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace bnlab {

double learning_rate(const Json& optimizer, int64_t step, int64_t steps) {
  double lr = optimizer.at("lr").get<double>();
  const auto warmup = optimizer.at("warmup_steps").get<int64_t>();
  if (step < warmup) {
    lr *= static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (optimizer.at("schedule") == "poly") {
    lr *= std::pow(1 - static_cast<double>(step) / static_cast<double>(steps),
                   optimizer.at("power").get<double>());
  }
  return lr;
}

Sgd::Sgd(const Json& optimizer, std::vector<NamedTensor> parameters)
    : momentum_(optimizer.at("momentum").get<double>()),
      weight_decay_(optimizer.at("weight_decay").get<double>()),
      nesterov_(optimizer.at("nesterov").get<bool>()) {
  const bool decay_all = optimizer.at("decay_norm_and_bias").get<bool>();
  for (NamedTensor& p : parameters) {
    const bool decays = decay_all || p.tensor.dim() > 1;
    const at::Tensor momentum = at::zeros_like(p.tensor);
    slots_.push_back({std::move(p), momentum, decays});
  }
}

void Sgd::step(double lr, const std::function<bool(const std::string&)>& trainable) {
  const at::NoGradGuard no_grad;
  for (const bool decays : {true, false}) {
    std::vector<at::Tensor> weights, gradients, momenta;
    for (const Slot& slot : slots_) {
      if (slot.decays == decays && trainable(slot.parameter.name)) {
        weights.push_back(slot.parameter.tensor);
        gradients.push_back(slot.parameter.tensor.grad());
        momenta.push_back(slot.momentum);
      }
    }
    if (!weights.empty()) {
      at::_fused_sgd_(weights, gradients, momentum_ == 0 ? std::vector<at::Tensor>{} : momenta,
                      decays ? weight_decay_ : 0.0, momentum_, lr, /*dampening=*/0.0, nesterov_,
                      /*maximize=*/false, /*is_first_step=*/false);
    }
  }
}

}  // namespace bnlab
