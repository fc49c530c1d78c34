// One run of one rank: a task, a model and a strategy, trained and evaluated. `run` is the loop and
// `train_step` the step; everything else is an object with a file of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/support/activity.hpp"
#include "harness/support/json.hpp"
#include "harness/training/checkpoint.hpp"
#include "harness/training/costs.hpp"
#include "harness/training/data.hpp"
#include "harness/training/endings/best_weights.hpp"
#include "harness/training/endings/early_stop.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/history.hpp"
#include "harness/training/loss.hpp"
#include "harness/training/loss_scale.hpp"
#include "harness/training/optimizers/optimizer.hpp"
#include "harness/training/step_graphs.hpp"
#include "harness/training/timing/step_timer.hpp"
#include "harness/training/trained_model.hpp"
#include "harness/training/weight_ema.hpp"

namespace bnlab {

class Trainer {
 public:
  // Builds everything, and loads the weights that the spec starts from. Goes on from the checkpoint that
  // `checkpoints` have found, if any, and keeps others there. Called by every rank. Throws Error where task,
  // model, strategy or placement refuse.
  Trainer(const RunSpec& spec, const std::string& data_dir, World& world, Checkpoints& checkpoints,
          RunLog log);

  // Trains to the last step, or until the loss is not finite or the spec's stop_early ends the run, and
  // evaluates on the way. With `select`, then goes back to the weights that were best in validation.
  void run();

  // Makes training steps over and over, from the first one on, to take their times. Called by every rank,
  // after run() and after all that is asked of the training: the weights are no result any more.
  void repeat_steps(int64_t steps);
  void end_repeats() { graphs_.invalidate(); }  // after the last of them
  // Makes so many steps and nothing else, for measurements: nothing is evaluated, reported or kept.
  void train_steps(int64_t steps);
  // Of all steps so far (StepTimer::throughput), on rank 0; called by every rank.
  Json step_times() { return timer_.throughput(0, data_.towers().total_samples(), world_.gradients()); }

  bool diverged() const { return history_.diverged(); }
  int64_t images_per_step() const { return data_.towers().total_samples(); }  // on all ranks
  // The record's "result"; called by every rank.
  Json result();
  std::vector<std::string> notes() const { return model_.notes(); }
  // Why stop_early ended the run, in a sentence; empty where it did not.
  std::string why_stopped() const { return stopped() ? early_stop_->sentence(data_.steps()) : ""; }
  // Rank 0 leaves parameters and saved pairs in run_dir/weights.safetensors, and the shadow pairs that the
  // run carries in run_dir/populations.safetensors, named "tower:3/SITE.running_mean": the numbers that an
  // evaluation uses. Called by every rank. Returns the bytes of the weights, 0 elsewhere.
  int64_t save_weights(const std::string& run_dir);

 private:
  void train_step(int64_t step);
  at::Tensor forward_passes(const Batch& batch, int64_t step);  // the loss of the step
  void begin_step(int64_t step);
  void end_part(StepTimer::Part part, ActivityPart next);
  // Within the work of a step, which may be recorded and then takes no time.
  void end_part_of_pass(StepTimer::Part part, ActivityPart next);
  // Does what is not a training step: its costs are not those of training, and it may move the tensors that
  // recorded steps work on.
  void between_steps(const std::function<void()>& work);
  bool reports(int64_t steps_done) const;  // whether the loss is reported after so many steps
  bool evaluates(int64_t steps_done) const;
  void evaluate();   // after a step; where weights are selected, on the validation split
  void take_best();  // puts the selected weights back and evaluates them on the test split
  // Steps that the weights have been trained for which answer in the end.
  int64_t answering_step() const { return best_ && !diverged() ? best_->step() : steps_done_; }
  Json selected() const;  // for the record
  bool may_stop(int64_t steps_done) const { return early_stop_ && early_stop_->due(steps_done); }
  bool stopped() const { return early_stop_ && !early_stop_->stopped().is_null(); }
  std::string why_none_is_replayed() const;  // step_graphs.hpp
  void describe(State& state);

  const RunSpec& spec_;
  World& world_;
  Checkpoints& checkpoints_;
  Data data_;
  TrainedModel model_;
  std::unique_ptr<Loss> loss_;
  std::unique_ptr<Optimizer> optimizer_;
  StepGraphs graphs_;
  std::unique_ptr<GradientSync> gradient_sync_;
  std::unique_ptr<WeightEma> ema_;         // null without weight_ema
  std::unique_ptr<LossScale> loss_scale_;  // null but for float16
  Evaluator evaluator_;
  History history_;
  std::optional<EarlyStop> early_stop_;  // nothing without stop_early
  std::optional<BestWeights> best_;      // nothing without select
  at::Tensor gradient_norm_;             // [], at the last step that is reported
  Costs costs_;
  StepTimer timer_;
  int64_t steps_done_ = 0;
  int64_t steps_repeated_ = 0;
  int64_t nonfinite_channels_ = 0;         // on this rank, in the whole training
  std::vector<int64_t> resumed_at_steps_;  // steps done, whenever the run went on from a checkpoint
};

}  // namespace bnlab
