// One run of one rank: a task, a model and a strategy, trained and evaluated. Trainer::run is the loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"
#include "harness/spec/spec.hpp"
#include "harness/strategy.hpp"
#include "harness/tasks/sampler.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/optimizer.hpp"
#include "harness/training/run_log.hpp"
#include "harness/training/step_timer.hpp"

namespace bnlab {

class Trainer {
 public:
  // Builds everything; called by every rank. Throws Error where task, model or strategy refuse.
  Trainer(const RunSpec& spec, const std::string& data_dir, World& world, RunLog log);

  // Trains to the last step (or until the loss is not finite), evaluating on the way.
  void run();

  bool diverged() const { return diverged_; }
  // The record's "result"; called by every rank.
  Json result();
  std::vector<NamedTensor> weights() const;  // parameters and saved pairs

 private:
  Batch next_batch(int64_t step);
  void train_step(int64_t step);
  void report_loss();
  void evaluate();  // evaluation.cpp, like measure
  Json measure(Mode mode);
  double epoch() const;  // passes through the training set so far

  const RunSpec& spec_;
  World& world_;
  RunLog log_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Network> network_;
  std::unique_ptr<GradientSync> gradient_sync_;
  std::unique_ptr<Sgd> optimizer_;
  Sampler sampler_;
  Towers towers_;
  int64_t steps_;
  StepTimer timer_;

  int64_t steps_done_ = 0;
  int64_t steps_reported_ = 0;
  at::Tensor loss_sum_;  // of the steps since the last report, as this rank weighs them
  double reported_loss_ = 0;
  std::vector<double> tail_losses_;  // reports in the last tenth of the steps
  bool diverged_ = false;
  Json sites_ = Json::array();
  Json history_ = Json::array();
  Json final_ = Json::object();
};

}  // namespace bnlab
