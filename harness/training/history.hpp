// What a run tells of its training while it is under way, in metrics.jsonl, and at its end, in the record:
// losses and evaluations.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"
#include "harness/state.hpp"
#include "harness/training/data.hpp"
#include "harness/training/run_log.hpp"

namespace bnlab {

class History {
 public:
  History(RunLog log, const Data& data, World& world, at::ScalarType loss_type);

  void add(const at::Tensor& loss);  // of one step, as this rank weighs it
  // Reports the mean loss since the last report, and of the last step the norm of all gradients together, before any
  // clipping. Called by every rank; waits for the device.
  void report(int64_t steps_done, double learning_rate, const at::Tensor& gradient_norm);
  void add_evaluation(int64_t steps_done, const Json& metrics_of_populations);

  void describe(State& state);

  bool diverged() const { return diverged_; }  // a reported loss was not finite
  // For the record: {"final", "headline", "train_loss", "history"}.
  Json summary() const;

 private:
  RunLog log_;
  const Data& data_;
  World& world_;
  at::Tensor loss_sum_;  // of the steps since the last report
  int64_t steps_reported_ = 0;
  double reported_loss_ = 0;
  std::vector<double> tail_losses_;  // reports in the last tenth of the steps
  bool diverged_ = false;
  Json evaluations_ = Json::array();
  Json final_ = Json::object();
};

}  // namespace bnlab
