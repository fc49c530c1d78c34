// The metrics of what a run trains: over every test sample exactly once, from one tensor summed over all
// ranks, under each population that the spec asks for.
#pragma once

#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"
#include "harness/population.hpp"
#include "harness/training/data.hpp"
#include "harness/training/site_report.hpp"
#include "harness/training/trained_model.hpp"
#include "harness/training/weight_ema.hpp"

namespace bnlab {

// All functions are called by every rank. `steps_done`: training steps before the evaluation, by which
// schedules go.
class Evaluator {
 public:
  // A population under the name that it has in the record.
  struct Named {
    std::string name;
    Population population;
  };

  // `ema`: the averaged weights, evaluated beside the others; null without them.
  Evaluator(const RunSpec& spec, Data& data, TrainedModel& model, World& world, WeightEma* ema);

  const std::vector<Named>& populations() const { return populations_; }

  // {"saved": {metrics}, ...} in the order of populations(). Leaves the strategy's own statistics in the
  // buffers.
  Json evaluate(int64_t steps_done);
  // What is known of each norm site after it.
  Json sites() const { return sites_.sites(); }
  // The metrics under the statistics that the network's buffers hold.
  Json measure(int64_t steps_done, Mode mode = Mode::evaluate_saved);

  // For this rank's samples of a test batch, as the spec's `evaluation` asks (predictions.hpp).
  at::Tensor predictions(const Batch& batch, int64_t steps_done, Mode mode);

  // Puts the statistics of a population into the network's buffers, and the strategy's own back. Returns what
  // RunningStatistics::load_into_buffers does.
  std::vector<double> load_into_buffers(const Population& population, int64_t steps_done);
  void restore();

 private:
  Evaluation evaluation_;
  Data& data_;
  TrainedModel& model_;
  World& world_;
  WeightEma* ema_;
  std::vector<Named> populations_;
  SiteReport sites_;
};

}  // namespace bnlab
