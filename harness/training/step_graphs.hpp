// Forward and backward pass of the training steps, one by one or, on GPUs (spec key cuda_graph), replayed: after some
// steps that are alike (repeats of strategy.hpp) one is recorded, and those that follow are replays of it on batches which are
// copied to where its batch lay. Whatever may have moved the tensors that it works on (an evaluation, a checkpoint) ends
// that. A step that cannot be recorded on one rank is made by itself on all of them, as are those that follow.
// Gradients are averaged and weights updated outside, by ordinary calls.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"
#include "harness/state.hpp"
#include "harness/strategy.hpp"
#include "harness/training/graph_recorder.hpp"

namespace bnlab {

// The ends of work on a device, in turn, which the host awaits no longer than a deadline allows.
class Ends {
 public:
  Ends(at::Device device, std::chrono::duration<double> timeout) : device_(device), timeout_(timeout) {}
  void add();  // of what the current stream has been given so far; nothing on the CPU
  // Until no more than `left` have yet to come. False where the next one does not come in time.
  bool wait(size_t left);

 private:
  at::Device device_;
  std::chrono::duration<double> timeout_;
  std::deque<c10::Event> ends_;
};

class StepGraphs {
 public:
  // Steps that are made one by one before one is recorded: in the first, libraries choose their algorithms.
  static constexpr int kStepsBefore = 3;
  // Replayed steps that the host may be ahead of the device. It waits for the others no longer than the spec's
  // collective_timeout_s: that another rank takes no part in a replayed exchange is else noticed by the next exchange
  // outside, if there is one.
  static constexpr size_t kAhead = 2;

  // Steps are replayed where the spec asks for it and `recorders` is given. `world` outlives this.
  StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world, NewRecorder recorders);
  StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world)
      : StepGraphs(spec, std::move(parameters), world, recorders_of(world.device())) {}

  bool possible() const { return recorders_ != nullptr; }  // as far as is known

  // A step begins: the batch to work on. `repeats`: the same on all ranks (strategy.hpp). Throws Error (communication)
  // where a replayed step has not ended in time. Called by every rank, as the next two are.
  Batch begin(const Batch& batch, bool repeats);
  // The loss, a scalar; `work` makes it. The parameters' gradients must be undefined. Where the step is recorded, both
  // halves are, before any of it is done, and if that fails `work` is called once more: so it leaves no trace on the host
  // that training rests on, and puts no tensor that outlives it in another's place.
  at::Tensor forward(const std::function<at::Tensor()>& work);
  // From the loss to the parameters' gradients.
  void backward();

  // The next step is not a replay. Throws as `begin` does.
  void forget();

  void describe(State& state) { state.value("graphs.replayed", replayed_); }
  // {"replayed_steps"}, and where there were none, or will be no more, "why_not". Null where the device has no
  // graphs or the spec asks for none.
  Json summary() const;

 private:
  enum class Way { by_itself, recorded, replayed };

  bool recorded(const std::function<at::Tensor()>& work);  // on all ranks
  std::string first_reason(const std::string& here);       // that a rank gives; empty if none does
  void wait_for_steps(size_t left);                        // until so many replayed ones are under way
  void drop_recording();
  void no_more(const std::string& why);

  World& world_;
  const std::vector<at::Tensor> parameters_;
  const double timeout_s_;
  NewRecorder recorders_;
  const bool asked_for_;                     // the spec asks for graphs, and the device has them
  std::unique_ptr<GraphRecorder> recorder_;  // where a step is recorded
  Batch batch_;                              // that it works on
  at::Tensor loss_;
  std::vector<at::Tensor> gradients_;                 // that it leaves
  std::array<Traffic, kPurposeNames.size()> booked_;  // by it

  Way way_ = Way::by_itself;  // of the step under way
  int alike_ = 0;             // steps, one after the other, by themselves
  int64_t uploads_ = 0;       // when these began
  Ends ends_;                 // of replayed steps
  int64_t replayed_ = 0;      // steps, the recorded ones too
  std::string why_not_ =
      "no " + std::to_string(kStepsBefore + 1) + " steps that are alike followed each other";
};

}  // namespace bnlab
