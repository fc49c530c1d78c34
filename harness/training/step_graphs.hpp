// The training steps. They are made one by one ("eagerly") or, on GPUs and with the spec key cuda_graph,
// replayed: after some steps that are alike (repeats of strategy.hpp) one is recorded, and the steps that
// follow are replays of it on batches that are copied to where its batch lay. A step has three parts, each a
// graph: the forward pass, the backward pass, and what changes the weights. Between the last two the ranks
// exchange gradients by an ordinary call, unless the backward pass holds the exchange (gradient_sync.hpp).
//
// A recording ends where the steps are no longer alike, or where something else than a step has been done
// (invalidate), which may have moved the tensors that the recording works on. A step that one rank cannot
// record is made eagerly on all of them, as are the steps that follow. Where a step has taken numbers from
// the host (upload.hpp) the ranks count alike steps anew, twice as many as before: the first step of a
// process may upload what later steps find on the device.
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
#include "harness/state.hpp"
#include "harness/strategy.hpp"
#include "harness/support/json.hpp"
#include "harness/support/upload.hpp"
#include "harness/training/graph_recorder.hpp"

namespace bnlab {

// Events on a device, in turn, for which the host waits no longer than a deadline allows.
class Events {
 public:
  Events(at::Device device, std::chrono::duration<double> timeout) : device_(device), timeout_(timeout) {}
  void record();  // behind what the current stream has been given so far; nothing on the CPU
  // Waits until no more than `left` are pending. False where the next one does not come in time.
  bool wait(size_t left);

 private:
  at::Device device_;
  std::chrono::duration<double> timeout_;
  std::deque<c10::Event> pending_;
};

class StepGraphs {
 public:
  // Eager steps before one is recorded: in the first, libraries choose their algorithms.
  static constexpr int kStepsBefore = 3;
  // Replayed steps that the host may be ahead of the device. The host waits for the others no longer than the
  // spec's collective_timeout_s. Without this wait, a rank that is missing in a replayed exchange would be
  // noticed only by the next exchange outside of replays, if there is one.
  static constexpr size_t kAhead = 2;

  // Steps are replayed where the spec asks for it and `make_recorder` is given, unless `why_not` says why
  // none of this run could be (why_none_is_replayed). `world` outlives this.
  StepGraphs(const RunSpec& spec, std::vector<at::Tensor> parameters, World& world,
             MakeRecorder make_recorder, const std::string& why_not = "");

  bool possible() const { return make_recorder_ != nullptr; }  // as far as is known

  // Begins a step and returns the batch to work on. `repeats` is that of strategy.hpp, the same on all ranks.
  // Throws Error (communication) where a replayed step has not ended in time. Called by every rank, as the
  // next two are.
  Batch begin(const Batch& batch, bool repeats);
  // Returns the loss, a scalar, which `work` makes. The parameters' gradients must be undefined. Where the
  // step is recorded, forward and backward pass are recorded before any of it is done, and if that fails
  // `work` is called once more. Therefore `work` must change nothing on the host that training depends on,
  // and must not replace a tensor that outlives it by another one. The same holds for what the next two are
  // given. `after_backward` belongs to the backward pass.
  // A step of several passes makes all but the last backward pass in `work`, too.
  at::Tensor forward(const std::function<at::Tensor()>& work, const std::function<void()>& after_backward);
  bool eager() const { return mode_ == StepMode::eager; }  // whether the step under way is made so
  // From the loss to the parameters' gradients.
  void backward();
  // Ends a step: `work` makes new weights of the gradients, without an exchange. Where it is recorded, now or
  // in a step that follows, it is given what it can take the numbers of the step from. Recorded only where
  // `records` holds.
  using Update = std::function<void(StepBytes* bytes)>;
  void update(const Update& work, bool records);

  // Ends the recording: the next step is not a replay. Throws as `begin` does.
  void invalidate();

  void describe(State& state) { state.value("graphs.replayed", replayed_); }
  // {"replayed_steps"}, where there were none, or will be no more, "why_not", and where the update of weights
  // could not be recorded "why_no_updates". Null where the device has no graphs or the spec asks for none.
  Json summary() const;

 private:
  enum class StepMode { eager, recorded, replayed };

  bool record(const std::function<at::Tensor()>& work, const std::function<void()>& after_backward);
  void record_update(const Update& work);
  std::string first_reason(const std::string& here);  // empty if no rank gives one
  void wait_for_steps(size_t left);                   // until no more than these are pending
  void drop_recording();
  void give_up(const std::string& why);  // for the rest of the run, or for some steps

  World& world_;
  const std::vector<at::Tensor> parameters_;
  const double timeout_s_;
  MakeRecorder make_recorder_;
  const bool asked_for_;                     // the spec asks for graphs, and the device has them
  std::unique_ptr<GraphRecorder> recorder_;  // where a step is recorded
  std::unique_ptr<GraphRecorder> update_;    // where its update is
  Batch batch_;                              // the recorded step takes it
  StepBytes bytes_;
  at::Tensor loss_;
  std::function<void()> after_backward_;               // an eager step is under way
  std::vector<at::Tensor> gradients_;                  // left by the recorded step
  std::array<Traffic, kPurposeNames.size()> traffic_;  // in the recorded step

  StepMode mode_ = StepMode::eager;  // the step under way
  int alike_ = 0;                    // eager steps that are alike, one after the other
  int wanted_ = kStepsBefore;        // so many of them before one is recorded
  int64_t uploads_ = 0;              // before the second of them
  Events ends_;                      // one per replayed step
  int64_t replayed_ = 0;             // steps, the recorded ones too
  std::string why_not_;
  std::string why_no_updates_;  // empty where nothing has failed
};

// Why no step of a run can be replayed, as far as that is known before it; empty where some may be.
// `repeats`: of strategy.hpp; `pauses`: whether something else is done before a step.
std::string why_none_is_replayed(int64_t steps, const std::function<bool(int64_t)>& repeats,
                                 const std::function<bool(int64_t)>& pauses);

}  // namespace bnlab
