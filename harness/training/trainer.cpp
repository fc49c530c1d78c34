#include "harness/training/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/models/model.hpp"
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

Towers make_towers(const RunSpec& spec, const World& world) {
  Towers towers(spec.samples_per_tower, world.size(), world.rank());
  if (spec.average_weights_every > 0 && towers.per_rank() != 1) {
    throw Error(Error::Kind::refused, "average_weights_every: expected one tower per rank, got " +
                                          std::to_string(towers.per_rank()) + "; use --ranks " +
                                          std::to_string(towers.count()));
  }
  return towers;
}

Sampler make_sampler(const RunSpec& spec, uint64_t seed, const Task& task, const Towers& towers) {
  if (spec.shard_key.empty()) {
    return Sampler::iid(seed, task.training_samples(), towers);
  }
  const std::vector<std::string> keys = task.sort_keys();
  if (std::find(keys.begin(), keys.end(), spec.shard_key) == keys.end()) {
    throw Error(Error::Kind::refused, "shards: the task " + spec.task.at("name").get<std::string>() +
                                          " has no key " + shown(spec.shard_key) + " to sort by" +
                                          suggestion(spec.shard_key, keys));
  }
  return Sampler::sorted(seed, task.sort_values(spec.shard_key), towers);
}

Strategy::Context strategy_context(const RunSpec& spec, World& world, int64_t steps) {
  std::vector<Population> shadows;
  for (const std::string& name : spec.populations) {
    if (const Population population = read_population(name); population.is_shadow()) {
      shadows.push_back(population);
    }
  }
  return {.statistics = world.statistics(),
          .host = world.host(),
          .seed = spec.seed,
          .dtype = parameter_type(spec.precision),
          .device = world.device(),
          .steps = steps,
          .fresh_weights = !spec.init_from.has_value(),
          .replicas = spec.average_weights_every > 0,
          .shadows = shadows};
}

std::unique_ptr<GradientSync> make_gradient_sync(GradientRoute route,
                                                 const std::vector<at::Tensor>& parameters, World& world) {
  switch (route) {
    case GradientRoute::rank0:
      return make_rank0_route(parameters, world.gradients());
    case GradientRoute::host:
      return make_host_route(parameters, world.host());
    case GradientRoute::reducer:
      break;
  }
  return world.reducer(parameters);
}

}  // namespace

Trainer::Trainer(const RunSpec& spec, const std::string& data_dir, World& world, RunLog log)
    : spec_(spec),
      world_(world),
      log_(std::move(log)),
      task_(Registered<Task>::create(spec.task, {spec.seed, data_dir})),
      towers_(make_towers(spec, world)),
      steps_(resolved_steps(spec, *task_, towers_.total_samples())),
      sampler_(make_sampler(spec, spec.seed, *task_, towers_)),
      calibration_(
          make_sampler(spec, DrawnCalibration::sampler_seed(spec.seed), *task_, towers_),
          [this](const std::vector<Draw>& draws, int64_t index) {
            const Batch batch = make_batch(draws, index);
            strategy_->forward(*network_, batch.images, batch.pass({steps_done_, steps_}, Mode::calibrate));
          }),
      timer_(world.device()) {
  const at::NoGradGuard no_grad;
  build_network();
  std::vector<NamedTensor> parameters;
  std::vector<std::string> norm_sites;
  for (const auto& p : network_->named_parameters()) {
    parameters.push_back({p.key(), p.value()});
  }
  for (const Json& site : sites_) {
    norm_sites.push_back(site.at("name").get<std::string>());
  }
  if (spec.average_weights_every > 0) {
    auto averaging = std::make_unique<WeightAveraging>(network_->parameters(), world.gradients());
    averaging_ = averaging.get();
    gradient_sync_ = std::move(averaging);
  } else {
    gradient_sync_ = make_gradient_sync(spec.gradient_route, network_->parameters(), world);
  }
  optimizer_ = std::make_unique<Sgd>(spec.optimizer, std::move(parameters), norm_sites);
  if (spec.weight_ema) {
    ema_ = std::make_unique<WeightEma>(*spec.weight_ema, network_->parameters());
  }
  loss_sum_ = at::zeros({}, at::TensorOptions().device(world.device()).dtype(parameter_type(spec.precision)));
}

void Trainer::build_network() {
  const auto model = Registered<Model>::create(spec_.model, {});
  for (const auto& [height, width] : {task_->training_image_size(), task_->test_image_size()}) {
    model->check_size(height, width);
  }
  strategy_ = Registered<Strategy>::create(spec_.strategy, strategy_context(spec_, world_, steps_));
  ListingMaker layers(*strategy_, sites_);
  network_ = model->build(layers, task_->classes());
  for (at::Tensor& parameter : network_->parameters()) {
    if (parameter.dim() == 4) {
      parameter.set_data(parameter.contiguous(bnlab::memory_format(spec_.memory_format)));
    }
  }
  if (spec_.init_from) {
    load_weights(*spec_.init_from);
  }
  for (at::Tensor& parameter : network_->parameters()) {
    world_.gradients().broadcast(parameter, 0, Purpose::control);  // rank 0's, not hoped equal
  }
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
  Batch batch = make_batch(sampler_.batch(step), step);
  std::optional<LossWeights> weights;
  const auto weigh = [&] {
    weights.emplace(*task_, batch, spec_.loss_mean, world_.gradients(), loss_sum_.options());
  };
  if (!task_->selects_labels()) {
    weigh();  // its exchange goes on during the forward pass
  }
  timer_.end(StepTimer::data);

  gradient_sync_->before_forward();
  at::Tensor loss;
  {
    const Autocast autocast(spec_.precision, world_.device().type());
    const at::Tensor outputs = strategy_->forward(*network_, batch.images, batch.pass(now, Mode::train));
    const std::vector<int64_t> offsets = batch.towers.local_offsets();
    if (task_->selects_labels()) {
      batch.labels = task_->select_labels(outputs.detach(), batch.labels, offsets);
      weigh();  // counts the labels that were chosen, so its exchange cannot start earlier
    }
    loss = task_->loss(outputs, batch.labels, offsets, weights->get());
  }
  timer_.end(StepTimer::forward);

  gradient_sync_->before_backward();
  loss.backward();
  gradient_sync_->after_backward();
  timer_.end(StepTimer::backward);

  optimizer_->step(learning_rate(spec_.optimizer, step, steps_),
                   [&](const std::string& name) { return strategy_->trainable(name, now); });
  gradient_sync_->after_step();
  after_update(step);
  timer_.end(StepTimer::optimizer);

  loss_sum_ += loss.detach();
  timer_.end_step();
}

// Averages over ranks and over time.
void Trainer::after_update(int64_t step) {
  if (averaging_ != nullptr && ((step + 1) % spec_.average_weights_every == 0 || step + 1 == steps_)) {
    std::vector<at::Tensor> state = network_->parameters();
    const std::vector<at::Tensor> momenta = optimizer_->momenta();
    state.insert(state.end(), momenta.begin(), momenta.end());
    averaging_->average(state);
    if (RunningStatistics* statistics = strategy_->running_statistics()) {
      statistics->average_replicas();
    }
  }
  if (ema_) {
    ema_->update(step);
    if (RunningStatistics* statistics = strategy_->running_statistics()) {
      statistics->update_average(ema_->decay_at(step));
    }
  }
}

Batch Trainer::make_batch(const std::vector<Draw>& draws, int64_t index) const {
  const Examples examples = task_->training(draws);
  Batch batch;
  batch.images = examples.images.to(world_.device(), parameter_type(spec_.precision), /*non_blocking=*/true,
                                    /*copy=*/false, bnlab::memory_format(spec_.memory_format));
  batch.labels = examples.labels.to(world_.device(), /*non_blocking=*/true);
  batch.towers = towers_;
  batch.index = static_cast<uint64_t>(index);
  return batch;
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
