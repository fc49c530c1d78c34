// The metrics of what a run trains: over every test sample exactly once, from one tensor summed over all
// ranks, under each population that the spec asks for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/population.hpp"
#include "harness/support/json.hpp"
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
  Json evaluate(int64_t steps_done, EvaluationSplit split = EvaluationSplit::test);
  // What is known of each norm site after it.
  Json sites(const std::vector<SiteValues>& values) const { return sites_.sites(values); }
  // The metrics under the statistics that the network's buffers hold, which are those of the population but
  // for what it takes from the test samples.
  Json measure(int64_t steps_done, const Population& population = {},
               EvaluationSplit split = EvaluationSplit::test);
  // The metrics of population own_tower. load: puts the pair of a tower into the network's buffers.
  Json measure_own_towers(int64_t steps_done, const std::function<void(int64_t tower)>& load);

  // The metrics of so many batches of training images, drawn as those of `precise` are, under the moments of
  // each batch itself: as the network trains, but for dropout.
  Json measure_training(int64_t steps_done, int64_t batches);

  // Recomputes the statistics in the network's buffers over so many training batches, of all towers or, on
  // one rank, of a single one's share of them.
  void recompute(int64_t batches, int64_t steps_done, std::optional<int64_t> tower);

  // For this rank's samples of a test batch, as the spec's `evaluation` asks (predictions.hpp), under the
  // statistics that measure() takes.
  at::Tensor predictions(const Batch& batch, int64_t steps_done, const Population& population);

  // Puts the statistics of a population into the network's buffers, and the strategy's own back. Returns what
  // RunningStatistics::load_into_buffers does.
  std::vector<double> load_into_buffers(const Population& population, int64_t steps_done);
  void restore();

  // The pairs that are carried beside the saved one.
  std::vector<Carried> carried() const;

 private:
  // What the task measures of each row by itself, summed up; sample: the test sample of a row.
  at::Tensor measured_by_row(const at::Tensor& outputs, const at::Tensor& labels,
                             const std::function<int64_t(int64_t row)>& sample) const;
  Calibration calibration(int64_t steps_done, std::optional<int64_t> tower);

  Evaluation evaluation_;
  Data& data_;
  TrainedModel& model_;
  World& world_;
  WeightEma* ema_;
  std::vector<Named> populations_;
  SiteReport sites_;
};

}  // namespace bnlab
