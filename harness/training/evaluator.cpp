#include "harness/training/evaluator.hpp"

#include <torch/types.h>

#include <limits>

#include "harness/training/predictions.hpp"

namespace bnlab {

Evaluator::Evaluator(const RunSpec& spec, Data& data, TrainedModel& model, World& world, WeightEma* ema)
    : evaluation_(spec.evaluation), data_(data), model_(model), world_(world), ema_(ema), sites_(model) {
  if (model.statistics() == nullptr) {
    populations_.push_back({"saved", {}});  // normalises alike in training and evaluation: this says it all
  } else {
    for (const std::string& name : spec.populations) {
      populations_.push_back({name, read_population(name, spec.precise_batches)});
    }
  }
  if (ema != nullptr) {
    populations_.push_back({kAveragedWeights, {.averaged = true}});
  }
}

Json Evaluator::evaluate(int64_t steps_done) {
  world_.ledger().evaluating(true);
  Json all = Json::object();
  for (const auto& [name, population] : populations_) {
    if (population.averaged) {
      ema_->swap();
    }
    sites_.keep(name, load_into_buffers(population, steps_done));
    const bool batch = population.kind == Population::Kind::batch;
    all[name] = measure(steps_done, batch ? Mode::evaluate_batch : Mode::evaluate_saved);
    if (population.averaged) {
      ema_->swap();
    }
  }
  restore();
  world_.ledger().evaluating(false);
  return all;
}

Json Evaluator::measure(int64_t steps_done, Mode mode) {
  const at::NoGradGuard no_grad;
  at::Tensor measured;
  data_.each_test([&](const Batch& batch) {
    const at::Tensor part = data_.task().measure(predictions(batch, steps_done, mode), batch.labels,
                                                 data_.first_test_sample(batch));
    measured = measured.defined() ? measured + part : part;
  });
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return data_.task().metrics(measured);
}

at::Tensor Evaluator::predictions(const Batch& batch, int64_t steps_done, Mode mode) {
  return bnlab::predictions(evaluation_, batch.images, [&](const at::Tensor& images) {
    Batch part = batch;
    part.images = images;
    return model_.forward(part, steps_done, mode).logits;
  });
}

std::vector<double> Evaluator::load_into_buffers(const Population& population, int64_t steps_done) {
  if (RunningStatistics* statistics = model_.statistics()) {
    const at::NoGradGuard no_grad;
    Calibration calibration(std::numeric_limits<int64_t>::max(), [&](int64_t index) {
      const Batch batch = data_.calibration(index);
      for (int64_t pass = 0; pass < data_.passes(); ++pass) {
        model_.forward(data_.micro_batch(batch, pass), steps_done, Mode::calibrate);
      }
    });
    return statistics->load_into_buffers(population, calibration);
  }
  return {};
}

void Evaluator::restore() {
  if (RunningStatistics* statistics = model_.statistics()) {
    statistics->restore();
  }
}

}  // namespace bnlab
