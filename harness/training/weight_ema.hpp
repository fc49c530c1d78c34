// A moving average of the weights, evaluated beside them (Polyak averaging with a forgetting factor): after
// training step k, from 0,
//   average <- d average + (1 - d) weights,   d = min(decay, (1 + k) / (10 + k)),
// so that the first steps, which know little, are soon forgotten. It starts from the initial weights. The
// saved running statistics are averaged alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "harness/running_statistics.hpp"
#include "harness/state.hpp"
#include "harness/support/upload.hpp"

namespace bnlab {

class WeightEma {
 public:
  // Borrows the tensors, of whose dtype the average is, and the statistics, which may be null.
  WeightEma(double decay, std::vector<at::Tensor> weights, RunningStatistics* statistics = nullptr);

  double decay_at(int64_t step) const;
  // Where updates may be recorded (StepGraphs::update) the decay comes from `bytes`. The averages are the
  // same.
  void update(int64_t step, StepBytes* bytes = nullptr);
  void describe(State& state);  // the averages of the weights
  // Exchanges the weights for their average, and back. The weights must not be trained in between.
  void swap();

 private:
  double decay_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> averages_;
  RunningStatistics* statistics_;
};

}  // namespace bnlab
