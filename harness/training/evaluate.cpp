#include "harness/training/evaluate.hpp"

#include <ATen/Parallel.h>

#include <map>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/error.hpp"
#include "harness/population.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

using Pairs = std::map<std::string, at::Tensor>;  // by buffer name

bool is_shadow(const std::string& population) {
  return read_population(population).is_shadow();
}

// The shadow pairs that a run left, by population.
std::map<std::string, Pairs> read_pairs(const std::string& file) {
  std::map<std::string, Pairs> all;
  for (const NamedTensor& t : file.empty() ? std::vector<NamedTensor>{} : read_safetensors(file)) {
    const size_t slash = t.name.find('/');
    if (slash == std::string::npos) {
      throw Error(Error::Kind::data, file + ": " + t.name + ": expected a name like mean/SITE.running_mean");
    }
    all[t.name.substr(0, slash)][t.name.substr(slash + 1)] = t.tensor;
  }
  return all;
}

const Pairs& pairs_of(const std::string& population, const std::map<std::string, Pairs>& all) {
  const auto found = all.find(population);
  if (found != all.end()) {
    return found->second;
  }
  std::string there;
  for (const auto& [name, unused] : all) {
    there += (there.empty() ? "" : ", ") + name;
  }
  throw Error(Error::Kind::data, "the run carried no pair for population " + population +
                                     " (there are: saved, precise, batch" +
                                     (there.empty() ? "" : ", " + there) +
                                     "); a run keeps those that its spec lists in populations");
}

// The run as one that starts from its weights and trains no further.
RunSpec starting_from(const EvaluateJob& job) {
  RunSpec spec = job.spec;
  spec.init_from = InitFrom{job.weights, false};
  spec.weight_ema.reset();
  spec.gradient_route = GradientRoute::reducer;
  spec.average_weights_every = 0;
  // Strategies take calibration to be at the training step of the last forward pass: "saved" makes it the
  // end.
  spec.populations = {"saved"};
  for (const std::string& population : job.populations) {
    if (population != "saved" && !is_shadow(population)) {
      spec.populations.push_back(population);
    }
  }
  return spec;
}

Json evaluate_on_rank(const EvaluateJob& job, const RunSpec& spec, const std::map<std::string, Pairs>& pairs,
                      World& world) {
  Trainer trainer(spec, job.data_dir, world, {});
  if (!trainer.has_running_statistics()) {
    return trainer.evaluate_as_ended();
  }
  for (const std::string& population : job.populations) {
    if (is_shadow(population)) {
      pairs_of(population, pairs);  // refuses before any work
    }
  }
  const Json live = trainer.evaluate_as_ended();
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    all[population] = is_shadow(population) ? trainer.evaluate_with_pairs(pairs_of(population, pairs))
                                            : live.at(population);
  }
  return all;
}

}  // namespace

Json evaluate_weights(const EvaluateJob& job) {
  at::set_num_threads(job.threads);
  const RunSpec spec = starting_from(job);
  const std::map<std::string, Pairs> pairs = read_pairs(job.pairs);
  if (job.ranks > 1) {
    prepare_thread_ranks();
  }
  Json of_rank0;
  on_thread_ranks(job.ranks, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const Json all = evaluate_on_rank(job, spec, pairs, world);
    if (world.rank() == 0) {
      of_rank0 = all;
    }
  });
  return of_rank0;
}

}  // namespace bnlab
