#include "harness/training/subject.hpp"

#include "harness/components/registry.hpp"
#include "harness/models/model.hpp"
#include "harness/training/precision.hpp"
#include "harness/training/weights.hpp"

namespace bnlab {
namespace {

std::unique_ptr<Strategy> make_strategy(const RunSpec& spec, World& world, const Data& data) {
  std::vector<Population> shadows;
  for (const std::string& name : spec.populations) {
    if (const Population population = read_population(name); population.is_shadow()) {
      shadows.push_back(population);
    }
  }
  return Registered<Strategy>::create(spec.strategy, {.statistics = world.statistics(),
                                                      .host = world.host(),
                                                      .seed = spec.seed,
                                                      .dtype = parameter_type(spec.precision),
                                                      .device = world.device(),
                                                      .steps = data.steps(),
                                                      .fresh_weights = !spec.init_from.has_value(),
                                                      .replicas = spec.average_weights_every > 0,
                                                      .shadows = shadows,
                                                      .samples_per_tower = data.towers().all_samples()});
}

}  // namespace

std::shared_ptr<Layer> ListingMaker::norm(const NormSite& site) {
  sites_.push_back(site);
  return layers_.norm(site);
}

Subject::Subject(const RunSpec& spec, const Data& data, World& world)
    : precision_(spec.precision), seed_(spec.seed), device_(world.device()), steps_(data.steps()) {
  const at::NoGradGuard no_grad;
  const auto model = Registered<Model>::create(
      spec.model, {.image_sizes = spec.evaluation.sizes_seen(
                       {data.task().training_image_size(), data.task().test_image_size()}),
                   .seed = spec.seed,
                   .parameters = at::TensorOptions().dtype(parameter_type(spec.precision)).device(device_)});
  strategy_ = make_strategy(spec, world, data);
  ListingMaker layers(*strategy_);
  network_ = model->build(layers, data.task().classes());
  sites_ = layers.sites();
  for (at::Tensor& parameter : network_->parameters()) {
    if (parameter.dim() == 4) {
      parameter.set_data(parameter.contiguous(bnlab::memory_format(spec.memory_format)));
    }
  }
  if (spec.init_from) {
    loaded_ = load_weights(*spec.init_from, *network_);
    for (at::Tensor& buffer : network_->buffers()) {
      world.gradients().broadcast(buffer, 0, Purpose::control);
    }
    if (RunningStatistics* running = statistics()) {
      running->init_from_buffers();
    }
  }
  for (at::Tensor& parameter : network_->parameters()) {
    world.gradients().broadcast(parameter, 0, Purpose::control);  // all ranks start from those of rank 0
  }
}

Outputs Subject::forward(const Batch& batch, int64_t step, Mode mode) {
  const Autocast autocast(precision_, device_.type());
  return strategy_->forward(*network_, batch.images, batch.pass({step, steps_}, mode, seed_));
}

void Subject::describe(State& state) {
  for (const auto& [name, parameter] : network_->named_parameters().pairs()) {
    state.tensor("parameters." + name, parameter);
  }
  for (const auto& [name, buffer] : network_->named_buffers().pairs()) {
    state.tensor("buffers." + name, buffer);
  }
  if (RunningStatistics* running = statistics()) {
    running->describe(state);
  }
}

std::vector<std::string> Subject::notes() const {
  std::vector<std::string> notes = strategy_->notes();
  if (!loaded_.empty()) {
    notes.push_back(loaded_);
  }
  return notes;
}

bool Subject::repeats(int64_t step) const {
  return bnlab::repeats(*strategy_, {step, steps_});
}

bool Subject::trainable(const std::string& parameter, int64_t step) const {
  return strategy_->trainable(parameter, {step, steps_});
}

}  // namespace bnlab
