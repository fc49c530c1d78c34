// One run of one rank: a task, a model and a strategy, trained and evaluated. `run` is the loop and
// `train_step` the step; everything else is an object with a file of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"
#include "harness/state.hpp"
#include "harness/training/checkpoint.hpp"
#include "harness/training/costs.hpp"
#include "harness/training/data.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/history.hpp"
#include "harness/training/loss.hpp"
#include "harness/training/optimizer.hpp"
#include "harness/training/step_graphs.hpp"
#include "harness/training/trained_model.hpp"
#include "harness/training/weight_ema.hpp"

namespace bnlab {

class Trainer {
 public:
  // Builds everything, and loads the weights that the spec starts from; called by every rank. Throws Error
  // where task, model, strategy or placement refuse.
  // Goes on from the checkpoint that `checkpoints` have found, if any, and keeps others there.
  Trainer(const RunSpec& spec, const std::string& data_dir, World& world, Checkpoints& checkpoints,
          RunLog log);

  // Trains to the last step (or until the loss is not finite), evaluating on the way.
  void run();

  bool diverged() const { return history_.diverged(); }
  // The record's "result"; called by every rank.
  Json result();
  std::vector<std::string> notes() const { return model_.notes(); }
  int64_t save_weights(const std::string& run_dir);  // weights.hpp

 private:
  void train_step(int64_t step);
  bool reports(int64_t steps_done) const;  // after so many steps
  void describe(State& state);

  const RunSpec& spec_;
  World& world_;
  Data data_;
  TrainedModel model_;
  std::unique_ptr<Loss> loss_;
  std::unique_ptr<Optimizer> optimizer_;
  StepGraphs graphs_;
  std::unique_ptr<GradientSync> gradient_sync_;
  std::unique_ptr<WeightEma> ema_;  // null without weight_ema
  Evaluator evaluator_;
  History history_;
  at::Tensor gradient_norm_;  // of the last step that is reported, []
  Costs costs_;
  StepTimer timer_;
  Checkpoints& checkpoints_;
  int64_t steps_done_ = 0;
  std::vector<int64_t>
      resumed_at_steps_;  // the steps that were done whenever the run went on from a checkpoint
};

}  // namespace bnlab
