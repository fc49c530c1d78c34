// How the gradients of all ranks become their mean. The training loop calls the four members around its own work.
#pragma once

#include <cstdint>

namespace bnlab {

class GradientSync {
 public:
  virtual ~GradientSync() = default;
  virtual void before_forward() = 0;
  virtual void before_backward() = 0;
  virtual void after_backward() = 0;                // gradients are the mean over the ranks when it returns
  virtual void after_step(int64_t steps_done) = 0;  // drops the gradients; the step just made counts
};

}  // namespace bnlab
