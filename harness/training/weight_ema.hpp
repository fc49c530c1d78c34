// A moving average of the weights, evaluated beside them (Polyak averaging with a forgetting factor): after
// training step k, from 0,
//   average <- d average + (1 - d) weights,   d = min(decay, (1 + k) / (10 + k)),
// so that the first steps, which know little, are soon forgotten. It starts from the initial weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace bnlab {

class WeightEma {
 public:
  WeightEma(double decay,
            std::vector<at::Tensor> weights);  // borrows the tensors; the average has their dtype

  double decay_at(int64_t step) const;
  void update(int64_t step);
  // Exchanges the weights for their average, and back. The weights must not be trained in between.
  void swap();

 private:
  double decay_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> averages_;
};

}  // namespace bnlab
