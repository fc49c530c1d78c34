#include "harness/training/evaluate.hpp"

#include <ATen/Parallel.h>

#include <map>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/error.hpp"
#include "harness/population.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/tf32.hpp"
#include "harness/training/data.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/subject.hpp"

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
  std::string there = "saved, precise, batch";
  for (const auto& [name, unused] : all) {
    there += ", " + name;
  }
  throw Error(Error::Kind::data, "the run carried no pair for population " + population + " (there are: " +
                                     there + "); a run keeps those that its spec lists in populations");
}

// The run as one that starts from its weights and trains no further.
RunSpec starting_from(const EvaluateJob& job) {
  RunSpec spec = job.spec;
  spec.init_from = InitFrom{job.weights, false};
  spec.average_weights_every = 0;
  spec.populations.clear();  // but for what has to be computed anew
  for (const std::string& population : job.populations) {
    if (population != "saved" && !is_shadow(population)) {
      spec.populations.push_back(population);
    }
  }
  return spec;
}

// Puts pairs into the network's buffers, for evaluations alone.
void put(const Pairs& pairs, const Subject& subject) {
  const at::NoGradGuard no_grad;
  for (auto& buffer : subject.network().named_buffers()) {
    const auto found = pairs.find(buffer.key());
    if (found == pairs.end() || found->second.sizes() != buffer.value().sizes()) {
      throw Error(Error::Kind::data, std::string(kPopulationsFile) + " has no statistics for " +
                                         buffer.key() + " that fit this model");
    }
    buffer.value().copy_(found->second);
  }
}

Json evaluate_on_rank(const EvaluateJob& job, const RunSpec& spec, std::map<std::string, Pairs> pairs,
                      World& world) {
  Data data(spec, job.data_dir, world);
  Subject subject(spec, data, world);
  Evaluator evaluator(spec, data, subject, world, nullptr);
  if (subject.statistics() == nullptr) {
    return evaluator.evaluate(data.steps());
  }
  for (const std::string& population : job.populations) {
    if (is_shadow(population)) {
      pairs_of(population, pairs);  // refuses before any work
    }
  }
  for (const auto& buffer : subject.network().named_buffers()) {
    pairs["saved"][buffer.key()] = buffer.value().clone();
  }
  const Json computed = evaluator.evaluate(data.steps());
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    if (computed.contains(population)) {
      all[population] = computed.at(population);
    } else {
      put(pairs_of(population, pairs), subject);
      all[population] = evaluator.measure(data.steps());
    }
  }
  return all;
}

}  // namespace

Json evaluate_weights(const EvaluateJob& job) {
  at::set_num_threads(job.threads);
  allow_tf32(job.spec.tf32);
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
