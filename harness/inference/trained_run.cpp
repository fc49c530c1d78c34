#include "harness/inference/trained_run.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <string>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/inference/loaded_run.hpp"
#include "harness/support/error.hpp"
#include "harness/support/tf32.hpp"

namespace bnlab {
namespace {

Json evaluate_on_rank(const EvaluateJob& job, World& world) {
  LoadedRun run(job, world);
  const int64_t steps = run.steps();
  const Json computed = run.evaluator().evaluate(steps);
  if (run.model().statistics() == nullptr) return computed;
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    if (computed.contains(population)) {
      all[population] = computed.at(population);
    } else if (population == "own_tower") {
      all[population] =
          run.evaluator().measure_own_towers(steps, [&](int64_t tower) { run.load_tower(tower); });
    } else {
      run.load_population(population);
      all[population] = run.evaluator().measure(steps);
    }
  }
  return all;
}

std::vector<uint8_t> bytes(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kCPU, at::kByte).contiguous();
  return {values.const_data_ptr<uint8_t>(), values.const_data_ptr<uint8_t>() + values.numel()};
}

// About zero mean and unit variance: two deviations either way are black and white.
at::Tensor visible(const at::Tensor& image) {
  return image.to(at::kFloat).mul(64).add(128).clamp(0, 255).permute({1, 2, 0});
}

std::vector<int64_t> spread(int64_t count, int64_t size) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < std::min(count, size); ++i) samples.push_back(i * size / std::min(count, size));
  return samples;
}

void check(const LoadedRun& run, const Task& task, const std::vector<int64_t>& samples) {
  if (facts_of<TaskFacts>(run.spec().task).labelled != Labelled::pixels) {
    throw Error(Error::Kind::refused, "the task " + run.spec().task.at("name").get<std::string>() +
                                          " does not label pixels; there is nothing to draw");
  }
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= task.test_samples()) {
      throw Error(Error::Kind::usage, "sample " + std::to_string(sample) +
                                          ": the test split has samples 0 to " +
                                          std::to_string(task.test_samples() - 1));
    }
  }
}

}  // namespace

Json evaluate_weights(const EvaluateJob& job) {
  at::set_num_threads(job.threads);
  allow_tf32(job.spec.tf32);
  if (job.ranks > 1) prepare_thread_ranks();
  Json of_rank0;
  on_thread_ranks(job.ranks, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const Json all = evaluate_on_rank(job, world);
    if (world.rank() == 0) of_rank0 = all;
  });
  return of_rank0;
}

std::vector<Prediction> predict(const EvaluateJob& job, const std::vector<int64_t>& wanted, int64_t count) {
  at::set_num_threads(job.threads);
  allow_tf32(job.spec.tf32);
  std::vector<Prediction> all;
  on_thread_ranks(1, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const at::NoGradGuard no_grad;
    LoadedRun run(job, world);
    Data& data = run.data();
    const std::vector<int64_t> samples = wanted.empty() ? spread(count, data.task().test_samples()) : wanted;
    check(run, data.task(), samples);
    const std::string& name = job.populations.at(0);
    const bool own_tower = name == "own_tower" && run.model().statistics() != nullptr;
    const Population population = own_tower ? Population() : run.load_population(name);
    for (const int64_t sample : samples) {
      if (own_tower) run.load_tower(data.tower_of_test(sample));
      const Batch batch = data.test(data.test_batch_of(sample));
      const int64_t row = sample - data.first_sample(EvaluationSplit::test, batch);
      const at::Tensor logits = run.evaluator().predictions(batch, run.steps(), population)[row];
      const at::Tensor labels = batch.labels[row];
      all.push_back({.sample = sample,
                     .height = labels.size(0),
                     .width = labels.size(1),
                     .image = bytes(visible(batch.images[row])),
                     .truth = bytes(labels.masked_fill(labels == Task::kVoid, kVoidId)),
                     .predicted = bytes(std::get<1>(logits.max(0)))});
    }
  });
  return all;
}

}  // namespace bnlab
