#include "harness/training/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "harness/error.hpp"
#include "harness/models/model.hpp"
#include "harness/registry.hpp"
#include "harness/training/loss_weights.hpp"
#include "harness/training/memory.hpp"
#include "harness/training/precision.hpp"

namespace bnlab {
namespace {

// Hands out the strategy's layers and lists the norm sites on the way.
class ListingMaker : public LayerMaker {
 public:
  ListingMaker(LayerMaker& layers, Json& sites) : layers_(layers), sites_(sites) {}
  std::shared_ptr<Layer> norm(const NormSite& site) override {
    sites_.push_back({{"name", site.name}, {"channels", site.channels}});
    return layers_.norm(site);
  }
  std::shared_ptr<Layer> conv(const ConvSite& site) override { return layers_.conv(site); }

 private:
  LayerMaker& layers_;
  Json& sites_;
};

int64_t resolved_steps(const RunSpec& spec, const Task& task, int64_t batch) {
  if (!spec.epochs) {
    return spec.steps;
  }
  const double images = *spec.epochs * static_cast<double>(task.training_samples());
  return static_cast<int64_t>(std::ceil(images / static_cast<double>(batch)));
}

}  // namespace

Trainer::Trainer(const RunSpec& spec, const std::string& data_dir, World& world, RunLog log)
    : spec_(spec),
      world_(world),
      log_(std::move(log)),
      task_(Registered<Task>::create(spec.task, {spec.seed, data_dir})),
      sampler_(spec.seed, task_->training_samples()),
      towers_(spec.samples_per_tower, world.size(), world.rank()),
      steps_(resolved_steps(spec, *task_, towers_.total_samples())),
      timer_(world.device()) {
  const auto model = Registered<Model>::create(spec.model, {});
  for (const auto& [height, width] : {task_->training_image_size(), task_->test_image_size()}) {
    model->check_size(height, width);
  }
  strategy_ = Registered<Strategy>::create(
      spec.strategy, {world.statistics(), spec.seed, parameter_type(spec.precision), world.device(), steps_});
  ListingMaker layers(*strategy_, sites_);
  network_ = model->build(layers, task_->classes());

  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> tensors;
  for (const auto& p : network_->named_parameters()) {
    if (p.value().dim() == 4) {
      p.value().set_data(p.value().contiguous(bnlab::memory_format(spec.memory_format)));
    }
    tensors.push_back(p.value());
    world.gradients().broadcast(tensors.back(), 0, Purpose::control);  // rank 0's, not hoped equal
    parameters.push_back({p.key(), p.value()});
  }
  gradient_sync_ = world.reducer(tensors);
  optimizer_ = std::make_unique<Sgd>(spec.optimizer, std::move(parameters));
  loss_sum_ = at::zeros({}, at::TensorOptions().device(world.device()).dtype(parameter_type(spec.precision)));
}

void Trainer::run() {
  for (int64_t step = 0; step < steps_ && !diverged_; ++step) {
    if (step == spec_.warmup_steps) {
      reset_peak_memory(world_.device());
      world_.ledger().clear();
    }
    train_step(step);
    steps_done_ = step + 1;
    if (steps_done_ % spec_.log_every == 0 || steps_done_ == steps_) {
      report_loss();
    }
    if (!diverged_ &&
        (steps_done_ == steps_ || (spec_.eval_every > 0 && steps_done_ % spec_.eval_every == 0))) {
      evaluate();
    }
  }
}

void Trainer::train_step(int64_t step) {
  const Step now{step, steps_};
  timer_.begin_step();
  const Batch batch = next_batch(step);
  LossWeights weights(*task_, batch, spec_.loss_mean, world_.gradients(), loss_sum_.options());
  timer_.end(StepTimer::data);

  gradient_sync_->before_forward();
  at::Tensor loss;
  {
    const Autocast autocast(spec_.precision, world_.device().type());
    const at::Tensor outputs = strategy_->forward(*network_, batch, now, Mode::train);
    loss = task_->loss(outputs, batch.labels, batch.towers.local_offsets(), weights.get());
  }
  timer_.end(StepTimer::forward);

  gradient_sync_->before_backward();
  loss.backward();
  gradient_sync_->after_backward();
  timer_.end(StepTimer::backward);

  optimizer_->step(learning_rate(spec_.optimizer, step, steps_),
                   [&](const std::string& name) { return strategy_->trainable(name, now); });
  gradient_sync_->after_step();
  timer_.end(StepTimer::optimizer);

  loss_sum_ += loss.detach();
  timer_.end_step();
}

Batch Trainer::next_batch(int64_t step) {
  const int64_t global = towers_.total_samples();
  const auto draws = sampler_.draws(step * global + towers_.local_begin(), towers_.local_samples());
  Examples examples = task_->training(draws);
  return {examples.images.to(world_.device(), parameter_type(spec_.precision), /*non_blocking=*/true,
                             /*copy=*/false, bnlab::memory_format(spec_.memory_format)),
          examples.labels.to(world_.device(), /*non_blocking=*/true), towers_};
}

// The mean loss since the last report; the one place where the loop waits for the device.
void Trainer::report_loss() {
  at::Tensor sum = loss_sum_.to(at::kDouble) / static_cast<double>(world_.size());
  world_.gradients().all_reduce(sum, Purpose::loss);
  const double loss = sum.item<double>() / static_cast<double>(steps_done_ - steps_reported_);
  loss_sum_.zero_();
  steps_reported_ = steps_done_;
  reported_loss_ = loss;
  if (steps_done_ > steps_ - std::max<int64_t>(steps_ / 10, 1)) {
    tail_losses_.push_back(loss);
  }
  diverged_ = !std::isfinite(loss);
  log_.write({{"kind", "train"},
              {"step", steps_done_},
              {"epoch", epoch()},
              {"loss", loss},
              {"lr", learning_rate(spec_.optimizer, steps_done_ - 1, steps_)}});
}

double Trainer::epoch() const {
  return static_cast<double>(steps_done_ * towers_.total_samples()) /
         static_cast<double>(task_->training_samples());
}

}  // namespace bnlab
