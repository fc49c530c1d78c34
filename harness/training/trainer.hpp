// One run of one rank: a task, a model and a strategy, trained and evaluated. Trainer::run is the loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"
#include "harness/population.hpp"
#include "harness/strategy.hpp"
#include "harness/tasks/sampler.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/calibration.hpp"
#include "harness/training/gradient_routes.hpp"
#include "harness/training/optimizer.hpp"
#include "harness/training/run_log.hpp"
#include "harness/training/step_timer.hpp"
#include "harness/training/weight_ema.hpp"

namespace bnlab {

class Trainer {
 public:
  // Builds everything, and loads the weights that the spec starts from; called by every rank. Throws Error
  // where task, model, strategy or placement refuse.
  Trainer(const RunSpec& spec, const std::string& data_dir, World& world, RunLog log);

  // Trains to the last step (or until the loss is not finite), evaluating on the way.
  void run();

  bool diverged() const { return diverged_; }
  // The record's "result"; called by every rank.
  Json result();
  std::vector<std::string> notes() const { return strategy_->notes(); }

  // Rank 0 writes parameters and saved pairs to run_dir/weights.safetensors, and the shadow pairs that the
  // run carries to run_dir/populations.safetensors, named "tower:3/SITE.running_mean". Called by every rank.
  // Returns the bytes of the weights (0 on other ranks).
  int64_t save_weights(const std::string& run_dir);

  // Without training: the metrics of the weights as they are, as at the end of the run, under each population
  // of the spec; and with other running statistics in the place of the saved pairs (by buffer name).
  Json evaluate_as_ended();
  Json evaluate_with_pairs(const std::map<std::string, at::Tensor>& pairs);
  bool has_running_statistics() const { return strategy_->running_statistics() != nullptr; }

 private:
  // A population under the name that it has in the record.
  struct Named {
    std::string name;
    Population population;
  };

  void build_network();
  void load_weights(const InitFrom& from);  // checkpoint.cpp
  Batch make_batch(const std::vector<Draw>& draws, int64_t index) const;
  void train_step(int64_t step);
  void after_update(int64_t step);
  void report_loss();
  std::vector<NamedTensor> tensors() const;  // parameters and buffers of the network
  std::vector<Named> populations() const;    // evaluation.cpp, like the next three
  void evaluate();
  Json evaluate_under(const std::vector<Named>& populations);
  void show(const Population& population);
  void show_own();
  Json measure(const Population& population);
  double epoch() const;  // passes through the training set so far

  const RunSpec& spec_;
  World& world_;
  RunLog log_;
  std::unique_ptr<Task> task_;
  Towers towers_;
  int64_t steps_;
  Sampler sampler_;
  DrawnCalibration calibration_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Network> network_;
  std::unique_ptr<GradientSync> gradient_sync_;
  WeightAveraging* averaging_ = nullptr;  // gradient_sync_, where it averages weights
  std::unique_ptr<Sgd> optimizer_;
  std::unique_ptr<WeightEma> ema_;  // null without weight_ema
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
