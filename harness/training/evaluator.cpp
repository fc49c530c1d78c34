#include "harness/training/evaluator.hpp"

#include <torch/types.h>

#include <limits>

#include "harness/support/mapped.hpp"
#include "harness/training/predictions.hpp"

namespace bnlab {

Evaluator::Evaluator(const RunSpec& spec, Data& data, TrainedModel& model, World& world, WeightEma* ema)
    : evaluation_(spec.evaluation), data_(data), model_(model), world_(world), ema_(ema), sites_(model) {
  // Without running statistics a network normalises alike in training and evaluation: its weights say it all.
  const bool has_statistics = model.statistics() != nullptr;
  if (!has_statistics) populations_.push_back({"saved", {}});
  for (const std::string& name : spec.populations) {
    const Population population = read_population(name, spec.precise_batches);
    if (has_statistics || population.averaged_weights) populations_.push_back({name, population});
  }
  if (ema != nullptr) populations_.push_back({kAveragedWeights, read_population(kAveragedWeights)});
}

Json Evaluator::evaluate(int64_t steps_done, EvaluationSplit split) {
  world_.ledger().evaluating(true);
  Json all = Json::object();
  for (const auto& [name, population] : populations_) {
    if (population.averaged_weights) ema_->swap();
    if (population.kind == Population::Kind::own_tower) {
      all[name] = measure_own_towers(steps_done, [&](int64_t tower) {
        load_into_buffers({.kind = Population::Kind::tower, .tower = tower}, steps_done);
      });
    } else {
      const std::vector<double> between_sets = load_into_buffers(population, steps_done);
      sites_.keep(name, population.averaged_weights ? std::vector<double>() : between_sets);
      all[name] = measure(steps_done, population, split);
    }
    if (population.averaged_weights) ema_->swap();
  }
  restore();
  world_.ledger().evaluating(false);
  return all;
}

Json Evaluator::measure(int64_t steps_done, const Population& population, EvaluationSplit split) {
  const at::NoGradGuard no_grad;
  const Task& task = data_.task_of(split);
  at::Tensor measured;
  data_.each(split, [&](const Batch& batch) {
    const at::Tensor part = task.measure(predictions(batch, steps_done, population), batch.labels,
                                         data_.first_sample(split, batch));
    measured = measured.defined() ? measured + part : part;
  });
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return task.metrics(measured);
}

Json Evaluator::measure_own_towers(int64_t steps_done, const std::function<void(int64_t tower)>& load) {
  const at::NoGradGuard no_grad;
  at::Tensor measured;
  for (int64_t tower = 0; tower < data_.towers().count(); ++tower) {
    load(tower);
    data_.each_test_of(tower, [&](const Batch& batch, const std::vector<int64_t>& samples) {
      const at::Tensor part = measured_by_row(predictions(batch, steps_done, {}), batch.labels,
                                              [&](int64_t row) { return samples[static_cast<size_t>(row)]; });
      measured = measured.defined() ? measured + part : part;
    });
  }
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return data_.task().metrics(measured);
}

Json Evaluator::measure_training(int64_t steps_done, int64_t batches) {
  const at::NoGradGuard no_grad;
  at::Tensor measured;
  for (int64_t i = 0; i < batches; ++i) {
    const Batch batch = data_.calibration(i);
    for (int64_t pass = 0; pass < data_.passes(); ++pass) {
      const Batch passed = data_.micro_batch(batch, pass);
      const at::Tensor part = measured_by_row(model_.forward(passed, steps_done, Mode::evaluate_batch).logits,
                                              passed.labels, [](int64_t) { return 0; });
      measured = measured.defined() ? measured + part : part;
    }
  }
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return data_.task().metrics(measured);
}

at::Tensor Evaluator::measured_by_row(const at::Tensor& outputs, const at::Tensor& labels,
                                      const std::function<int64_t(int64_t row)>& sample) const {
  at::Tensor measured = data_.task().measure(outputs.narrow(0, 0, 0), labels.narrow(0, 0, 0), 0);
  for (int64_t row = 0; row < labels.size(0); ++row) {
    measured =
        measured + data_.task().measure(outputs.narrow(0, row, 1), labels.narrow(0, row, 1), sample(row));
  }
  return measured;
}

at::Tensor Evaluator::predictions(const Batch& batch, int64_t steps_done, const Population& population) {
  const Mode mode = population.kind == Population::Kind::batch ? Mode::evaluate_batch : Mode::evaluate_saved;
  return bnlab::predictions(evaluation_, batch.images, [&](const at::Tensor& images) {
    Batch part = batch;
    part.images = images;
    part.own_share = population.own_share;
    return model_.forward(part, steps_done, mode).logits;
  });
}

std::vector<double> Evaluator::load_into_buffers(const Population& population, int64_t steps_done) {
  if (RunningStatistics* statistics = model_.statistics()) {
    const at::NoGradGuard no_grad;
    Calibration batches = calibration(steps_done, {});
    const bool mixes = population.kind == Population::Kind::mix;  // with the saved pair
    return statistics->load_into_buffers(mixes ? Population() : population, batches);
  }
  return {};
}

Calibration Evaluator::calibration(int64_t steps_done, std::optional<int64_t> tower) {
  return Calibration(std::numeric_limits<int64_t>::max(), [this, steps_done, tower](int64_t index) {
    Batch batch = data_.calibration(index);
    if (tower) {
      std::vector<int64_t> samples(static_cast<size_t>(batch.towers.count()), 0);
      samples[static_cast<size_t>(*tower)] = batch.towers.samples(*tower);
      const int64_t rows = batch.rows_per_sample;
      batch.images =
          batch.images.narrow(0, batch.towers.offset(*tower) * rows, batch.towers.samples(*tower) * rows);
      batch.towers = Towers(samples, batch.towers.ranks(), batch.towers.rank());
    }
    for (int64_t pass = 0; pass < data_.passes(); ++pass)
      model_.forward(data_.micro_batch(batch, pass), steps_done, Mode::calibrate);
  });
}

void Evaluator::recompute(int64_t batches, int64_t steps_done, std::optional<int64_t> tower) {
  const at::NoGradGuard no_grad;
  Calibration of_tower = calibration(steps_done, tower);
  model_.statistics()->load_into_buffers({.kind = Population::Kind::precise, .batches = batches}, of_tower);
}

std::vector<Carried> Evaluator::carried() const {
  return carried_for(mapped(populations_, &Named::name), data_.towers().count());
}

void Evaluator::restore() {
  if (RunningStatistics* statistics = model_.statistics()) statistics->restore();
}

}  // namespace bnlab
