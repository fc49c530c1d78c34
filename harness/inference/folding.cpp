#include "harness/inference/folding.hpp"

#include <torch/types.h>

#include <map>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/inference/folded_layers.hpp"
#include "harness/models/model.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"
#include "harness/training/data.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/weights.hpp"

namespace bnlab {
namespace {

constexpr double kTolerance = 1e-5;

// The job's network with layers of another strategy and precision.
BuiltNetwork network(const EvaluateJob& job, const Task& task, World& world, const Json& strategy,
                     at::ScalarType type, std::vector<MadeLayer>& made) {
  const auto build =
      builder_of(job.spec.model,
                 {.image_sizes = {task.training_image_size()}, .seed = job.spec.seed, .parameters = type},
                 task.classes());
  return {strategy,
          {.statistics = world.statistics(),
           .host = world.host(),
           .seed = job.spec.seed,
           .dtype = type,
           .steps = 1,
           .fresh_weights = false},
          [&](LayerMaker& layers) {
            LayerRecorder recorder(layers, made);
            return build(recorder);
          }};
}

at::Tensor logits(BuiltNetwork& network, Batch batch, at::ScalarType type) {
  batch.images = batch.images.to(type);
  return network.forward(batch, {}, Mode::evaluate_saved).logits.to(at::kDouble);
}

Folded folded(const EvaluateJob& job, const std::string& out, World& world) {
  const at::NoGradGuard no_grad;
  const Data data(job.spec, job.data_dir, world);
  std::vector<MadeLayer> made, of_plain;
  BuiltNetwork trained = network(job, data.task(), world, job.spec.strategy, at::kDouble, made);
  load_weights({.file = job.weights}, trained.network());
  trained.start_statistics();
  const FoldedLayers layers = folded_layers(made);
  if (!layers.staying.empty()) {
    throw Error(Error::Kind::refused,
                "strategy " + label(job.spec.strategy) + " cannot be folded: " + layers.staying);
  }
  BuiltNetwork plain = network(job, data.task(), world, {{"name", "none"}}, at::kFloat, of_plain);
  std::map<std::string, at::Tensor> tensors = layers.tensors;
  for (const NamedTensor& t : tensors_of(trained.network())) tensors.emplace(t.name, t.tensor);
  for (const NamedTensor& t : tensors_of(plain.network())) t.tensor.copy_(tensors.at(t.name));
  const Batch batch = data.test(0);
  const at::Tensor expected = logits(trained, batch, at::kDouble);
  const at::Tensor error = (logits(plain, batch, at::kFloat) - expected).abs().max() / expected.abs().max();
  const Folded answer{layers.norms, data.task().classes(), error.item<double>()};
  if (!(answer.difference < kTolerance)) {
    throw Error(Error::Kind::refused, "the folded network answers otherwise, by " +
                                          significant(answer.difference, 2) + " of its largest output");
  }
  write_safetensors(out, tensors_of(plain.network()));
  return answer;
}

}  // namespace

Folded write_folded(const EvaluateJob& job, const std::string& out) {
  at::set_num_threads(job.threads);
  Folded answer;
  on_thread_ranks(1, at::kCPU, [&](World& world) { answer = folded(job, out, world); });
  return answer;
}

}  // namespace bnlab
