#include "harness/training/trained_model.hpp"

#include "harness/models/model.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/precision.hpp"
#include "harness/training/weights.hpp"

namespace bnlab {
namespace {

Strategy::Context strategy_context(const RunSpec& spec, const Data& data, World& world) {
  const std::vector<Population> shadows =
      mapped(carried_for(spec.populations, spec.towers()), &Carried::population);
  return {.statistics = world.statistics(),
          .host = world.host(),
          .seed = spec.seed,
          .dtype = parameter_type(spec.precision),
          .device = world.device(),
          .steps = data.steps(),
          .fresh_weights =
              !spec.init_from.has_value() && !facts_of<ModelFacts>(spec.model).brings_weights(spec.model),
          .replicas = spec.average_weights_every > 0,
          .shadows = shadows,
          .samples_per_tower = data.towers_of_pass().all_samples()};
}

BuiltNetwork built_network(const RunSpec& spec, const Data& data, World& world) {
  const auto parameters = at::TensorOptions().dtype(parameter_type(spec.precision)).device(world.device());
  ImageSizes of_task = {data.task().training_image_size()};
  for (const EvaluationSplit split : data.splits())
    for (const OneSize& evaluated : data.task_of(split).test_sizes()) of_task.push_back(evaluated.size);
  const ImageSizes sizes = spec.evaluation.sizes_seen(of_task);
  const BuiltNetwork::Build build = builder_of(
      spec.model, {.image_sizes = sizes, .seed = spec.seed, .parameters = parameters}, data.task().classes());
  const at::NoGradGuard no_grad;
  return {spec.strategy, strategy_context(spec, data, world), build};
}

}  // namespace

TrainedModel::TrainedModel(const RunSpec& spec, const Data& data, World& world)
    : precision_(spec.precision),
      recompute_(spec.recompute),
      seed_(spec.seed),
      device_(world.device()),
      steps_(data.steps()),
      built_(built_network(spec, data, world)) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : network().parameters())
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(bnlab::memory_format(spec.memory_format)));
  if (spec.init_from) {
    loaded_ = load_weights(*spec.init_from, network());
    for (at::Tensor& buffer : network().buffers()) world.gradients().broadcast(buffer, 0, Purpose::control);
    built_.start_statistics();
  }
  for (at::Tensor& parameter : network().parameters())
    world.gradients().broadcast(parameter, 0, Purpose::control);  // all ranks start from those of rank 0
}

Outputs TrainedModel::forward(const Batch& batch, int64_t step, Mode mode) {
  const Autocast autocast(precision_, device_.type());
  return built_.forward(batch, {step, steps_}, mode, seed_, recompute_);
}

void TrainedModel::describe(State& state) {
  for (const auto& [name, parameter] : network().named_parameters().pairs())
    state.tensor("parameters." + name, parameter);
  for (const auto& [name, buffer] : network().named_buffers().pairs())
    state.tensor("buffers." + name, buffer);
  if (RunningStatistics* running = statistics()) running->describe(state);
}

std::vector<std::string> TrainedModel::notes() const {
  std::vector<std::string> notes = built_.strategy().notes();
  for (const std::string& note : network().notes()) notes.push_back(note);
  if (!loaded_.empty()) notes.push_back(loaded_);
  return notes;
}

bool TrainedModel::repeats(int64_t step) const {
  return bnlab::repeats(built_.strategy(), {step, steps_});
}

bool TrainedModel::trainable(const std::string& parameter, int64_t step) const {
  return network().trainable(parameter) && built_.strategy().trainable(parameter, {step, steps_});
}

}  // namespace bnlab
