// Ends a run whose training fails, by the rule of its spec (`stop_early`): the loss has risen far above that
// of the first steps, or has not fallen below it for long. Only training losses decide, never an evaluation.
//   window k: steps (k - 1) every + 1 to k every, ratio = mean loss of window k / mean loss of window 1
//   diverging: ratio > diverging_above;  at chance: ratio > chance_above after chance_after steps or more
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class EarlyStop {
 public:
  EarlyStop(const StopEarly& rule, World& world, at::ScalarType loss_type);

  void add(const at::Tensor& loss);  // one step, as this rank weighs it
  // Whether a window ends after so many steps.
  bool due(int64_t steps_done) const { return steps_done % rule_.every == 0; }
  // At the end of a window: whether the run ends here. Called by every rank; all have the same answer, that
  // of rank 0. Waits for the device. A loss that is not finite ends nothing: such a run diverges by itself.
  bool ends_run(int64_t steps_done);

  // {"step", "reason": "diverging" or "at chance", "loss", "first_loss"}; null while the run goes on.
  const Json& stopped() const { return stopped_; }
  // The same in a sentence, for a run of so many steps.
  std::string sentence(int64_t steps) const;

  void describe(State& state);

 private:
  StopEarly rule_;
  World& world_;
  at::Tensor loss_sum_;    // in the window under way
  double first_loss_ = 0;  // the mean of the first window
  Json stopped_;
};

}  // namespace bnlab
