#include "harness/inference/trained_run.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <string>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/communicator/world.hpp"
#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/population.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/tf32.hpp"
#include "harness/training/data.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/trained_model.hpp"

namespace bnlab {
namespace {

// A run as it was when it left its weights.
class LoadedRun {
 public:
  // Called by every rank. Throws Error: data for a file that cannot be used or has no pair of a population
  // that the job asks for, refused where weights and spec do not fit.
  LoadedRun(const EvaluateJob& job, World& world);
  LoadedRun(const LoadedRun&) = delete;  // its parts refer to each other

  // Puts the running statistics of one of the job's populations into the network's buffers and returns the
  // mode in which to evaluate with them. Does nothing where the strategy has none.
  Mode load_population(const std::string& population);

  const RunSpec& spec() const { return spec_; }
  Data& data() { return data_; }
  TrainedModel& model() { return model_; }
  Evaluator& evaluator() { return evaluator_; }

 private:
  using Pairs = std::map<std::string, at::Tensor>;  // by buffer name

  const Pairs& pairs_of(const std::string& population) const;
  void put(const Pairs& pairs);

  std::map<std::string, Pairs> pairs_;  // by population: those of the file, and "saved"
  RunSpec spec_;
  Data data_;
  TrainedModel model_;
  Evaluator evaluator_;
};

bool is_shadow(const std::string& population) {
  return read_population(population).is_shadow();
}

// The shadow pairs that a run left, by population.
std::map<std::string, std::map<std::string, at::Tensor>> read_pairs(const std::string& file) {
  std::map<std::string, std::map<std::string, at::Tensor>> all;
  for (const NamedTensor& t : file.empty() ? std::vector<NamedTensor>{} : read_safetensors(file)) {
    const size_t slash = t.name.find('/');
    if (slash == std::string::npos) {
      throw Error(Error::Kind::data, file + ": " + t.name + ": expected a name like mean/SITE.running_mean");
    }
    all[t.name.substr(0, slash)][t.name.substr(slash + 1)] = t.tensor;
  }
  return all;
}

// The run as one that starts from its weights and trains no further.
RunSpec starting_from(const EvaluateJob& job) {
  RunSpec spec = job.spec;
  spec.init_from = InitFrom{job.weights};
  spec.average_weights_every = 0;
  spec.populations.clear();  // but for what has to be computed anew
  for (const std::string& population : job.populations) {
    if (population != "saved" && !is_shadow(population)) {
      spec.populations.push_back(population);
    }
  }
  return spec;
}

LoadedRun::LoadedRun(const EvaluateJob& job, World& world)
    : pairs_(read_pairs(job.pairs)),
      spec_(starting_from(job)),
      data_(spec_, job.data_dir, world),
      model_(spec_, data_, world),
      evaluator_(spec_, data_, model_, world, nullptr) {
  if (model_.statistics() == nullptr) {
    return;
  }
  for (const std::string& population : job.populations) {
    if (is_shadow(population)) {
      pairs_of(population);  // refuses before any work
    }
  }
  for (const auto& buffer : model_.network().named_buffers()) {
    pairs_["saved"][buffer.key()] = buffer.value().clone();
  }
}

Mode LoadedRun::load_population(const std::string& name) {
  if (model_.statistics() == nullptr) {
    return Mode::evaluate_saved;
  }
  const auto& computed = evaluator_.populations();
  const auto found = std::ranges::find(computed, name, &Evaluator::Named::name);
  if (found == computed.end()) {
    put(pairs_of(name));
    return Mode::evaluate_saved;
  }
  evaluator_.load_into_buffers(found->population, data_.steps());
  return found->population.kind == Population::Kind::batch ? Mode::evaluate_batch : Mode::evaluate_saved;
}

const LoadedRun::Pairs& LoadedRun::pairs_of(const std::string& population) const {
  const auto found = pairs_.find(population);
  if (found != pairs_.end()) {
    return found->second;
  }
  std::vector<std::string> there = {"saved", "precise", "batch"};
  for (const auto& [name, unused] : pairs_) {
    there.push_back(name);
  }
  throw Error(Error::Kind::data, "the run carried no pair for population " + population +
                                     " (there are: " + joined(there) +
                                     "); a run keeps those that its spec lists in populations");
}

// For evaluations alone: the strategy does not know of it.
void LoadedRun::put(const Pairs& pairs) {
  const at::NoGradGuard no_grad;
  for (auto& buffer : model_.network().named_buffers()) {
    const auto found = pairs.find(buffer.key());
    if (found == pairs.end() || found->second.sizes() != buffer.value().sizes()) {
      throw Error(Error::Kind::data, std::string(kPopulationsFile) + " has no statistics for " +
                                         buffer.key() + " that fit this model");
    }
    buffer.value().copy_(found->second);
  }
}

Json evaluate_on_rank(const EvaluateJob& job, World& world) {
  LoadedRun run(job, world);
  const int64_t steps = run.data().steps();
  const Json computed = run.evaluator().evaluate(steps);
  if (run.model().statistics() == nullptr) {
    return computed;
  }
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    if (computed.contains(population)) {
      all[population] = computed.at(population);
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
  for (int64_t i = 0; i < std::min(count, size); ++i) {
    samples.push_back(i * size / std::min(count, size));
  }
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
  if (job.ranks > 1) {
    prepare_thread_ranks();
  }
  Json of_rank0;
  on_thread_ranks(job.ranks, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const Json all = evaluate_on_rank(job, world);
    if (world.rank() == 0) {
      of_rank0 = all;
    }
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
    const Mode mode = run.load_population(job.populations.at(0));
    for (const int64_t sample : samples) {
      const Batch batch = data.test(data.test_batch_of(sample));
      const int64_t row = sample - data.first_test_sample(batch);
      const at::Tensor logits = run.evaluator().predictions(batch, data.steps(), mode)[row];
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
