// Work on a GPU that is recorded once and then replayed: the parts of a training step as CUDA graphs.
// Replaying a graph costs the host one launch, where the work itself costs it some hundred.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace bnlab {

enum class StepPart { forward, backward, update };

class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Calls `work` once; what it would do on the device is kept for replay() in place of being done. The memory
  // that the work takes stays its own as long as this lives, so that the tensors which it made hold what the
  // last replay left. The work may use the memory of tensors from outside, but no number of the host that
  // changes. Throws Error (environment) where the work cannot be recorded, because it waits for the device or
  // memory is short. Then nothing has been done on the device, and this recorder cannot be used again.
  virtual void record(StepPart part, const std::function<void()>& work) = 0;
  // Always in the order in which the parts were recorded, on the same stream. Does not wait for the device.
  virtual void replay(StepPart part) = 0;
};

using MakeRecorder = std::function<std::unique_ptr<GraphRecorder>()>;

// Null where there are no graphs: on the CPU.
MakeRecorder recorders_of(c10::Device device);

}  // namespace bnlab
