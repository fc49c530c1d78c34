#include "harness/training/evaluator.hpp"

#include <torch/types.h>

#include <limits>

#include "harness/training/answers.hpp"

namespace bnlab {
namespace {

// Calibration batches through the subject as it is after some training steps.
class CalibrationAfter : public Calibration {
 public:
  CalibrationAfter(int64_t steps_done, Data& data, Subject& subject)
      : steps_done_(steps_done), data_(data), subject_(subject) {}

  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
  void forward(int64_t index) override {
    subject_.forward(data_.calibration(index), steps_done_, Mode::calibrate);
  }

 private:
  int64_t steps_done_;
  Data& data_;
  Subject& subject_;
};

}  // namespace

Evaluator::Evaluator(const RunSpec& spec, Data& data, Subject& subject, World& world, WeightEma* ema)
    : evaluation_(spec.evaluation),
      data_(data),
      subject_(subject),
      world_(world),
      ema_(ema),
      sites_(subject) {
  if (subject.statistics() == nullptr) {
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
    sites_.keep(name, show(population, steps_done));
    const bool batch = population.kind == Population::Kind::batch;
    all[name] = measure(steps_done, batch ? Mode::evaluate_batch : Mode::evaluate_saved);
    if (population.averaged) {
      ema_->swap();
    }
  }
  show_own();
  world_.ledger().evaluating(false);
  return all;
}

Json Evaluator::measure(int64_t steps_done, Mode mode) {
  const at::NoGradGuard no_grad;
  at::Tensor measured;
  for (int64_t i = 0; i < data_.test_batches(); ++i) {
    const Batch batch = data_.test(i);
    const at::Tensor part =
        data_.task().measure(answers(batch, steps_done, mode), batch.labels, data_.first_test_sample(batch));
    measured = measured.defined() ? measured + part : part;
  }
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return data_.task().metrics(measured);
}

at::Tensor Evaluator::answers(const Batch& batch, int64_t steps_done, Mode mode) {
  return bnlab::answers(evaluation_, batch.images, [&](const at::Tensor& images) {
    Batch part = batch;
    part.images = images;
    return subject_.forward(part, steps_done, mode).logits;
  });
}

std::vector<double> Evaluator::show(const Population& population, int64_t steps_done) {
  if (RunningStatistics* statistics = subject_.statistics()) {
    const at::NoGradGuard no_grad;
    CalibrationAfter calibration(steps_done, data_, subject_);
    return statistics->load_into_buffers(population, calibration);
  }
  return {};
}

void Evaluator::show_own() {
  if (RunningStatistics* statistics = subject_.statistics()) {
    statistics->restore();
  }
}

}  // namespace bnlab
