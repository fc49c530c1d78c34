// The state of a run at its best evaluation on the validation split, kept in memory until the run ends: its
// weights, the saved pairs and all that running statistics remember, so that every population can be
// evaluated with it as if training had ended there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/state.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// All functions are called by every rank, in the same order.
class BestWeights {
 public:
  using Describe = std::function<void(State& state)>;

  // `describe`: what is kept. Keeps the state as it is, so that a checkpoint finds its shapes.
  explicit BestWeights(Describe describe);

  // An evaluation after so many steps; the higher, the better, and of equals the first one. One that is not
  // a number is worse than any other.
  void offer(int64_t steps_done, const Json& score);
  void restore();  // puts the best state back

  int64_t step() const { return step_; }  // steps done at the best evaluation; 0: there was none
  const Json& score() const { return score_; }
  int64_t evaluations() const { return evaluations_; }

  void describe(State& state);  // for checkpoints

 private:
  struct Kept {
    std::string name;
    at::Tensor tensor;
    Across ranks = Across::same;
  };
  class Taking;
  class PuttingBack;

  void keep();

  Describe describe_;
  std::vector<Kept> tensors_;
  std::map<std::string, Json> values_;
  int64_t step_ = 0, evaluations_ = 0;
  Json score_;
};

}  // namespace bnlab
