#include "harness/inference/loaded_run.hpp"

#include <algorithm>

#include "harness/components/parameters.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

// The pairs of the run without which it cannot be evaluated so.
std::vector<std::string> needed_pairs(const EvaluateJob& job) {
  return mapped(carried_for(job.populations, job.spec.towers()), &Carried::name);
}

// The shadow pairs that a run left, by population.
std::map<std::string, std::map<std::string, at::Tensor>> read_pairs(const std::string& file) {
  std::map<std::string, std::map<std::string, at::Tensor>> all;
  for (const NamedTensor& t : file.empty() ? std::vector<NamedTensor>{} : read_safetensors(file)) {
    const size_t slash = t.name.find('/');
    if (slash == std::string::npos)
      throw Error(Error::Kind::data, file + ": " + t.name + ": expected a name like mean/SITE.running_mean");
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
    const Population::Kind kind = read_population(population).kind;
    if (kind == Population::Kind::precise || kind == Population::Kind::batch || kind == Population::Kind::mix)
      spec.populations.push_back(population);
  }
  return spec;
}

}  // namespace

LoadedRun::LoadedRun(const EvaluateJob& job, World& world)
    : pairs_(read_pairs(job.pairs)),
      spec_(starting_from(job)),
      data_(spec_, job.data_dir, world),
      steps_(job.steps.value_or(data_.steps())),
      model_(spec_, data_, world),
      evaluator_(spec_, data_, model_, world, nullptr) {
  if (model_.statistics() == nullptr) return;
  for (const std::string& needed : needed_pairs(job)) pairs_of(needed);  // refuses before any work
  pairs_["saved"] = pairs();
}

LoadedRun::Pairs LoadedRun::pairs() const {
  Pairs all;
  for (const auto& buffer : model_.network().named_buffers()) all[buffer.key()] = buffer.value().clone();
  return all;
}

Population LoadedRun::load_population(const std::string& name) {
  if (model_.statistics() == nullptr) return {};
  const auto& computed = evaluator_.populations();
  const auto found = std::ranges::find(computed, name, &Evaluator::Named::name);
  if (found == computed.end()) {
    put(pairs_of(name));
    return {};
  }
  evaluator_.load_into_buffers(found->population, steps_);
  return found->population;
}

const LoadedRun::Pairs& LoadedRun::pairs_of(const std::string& population) const {
  const auto found = pairs_.find(population);
  if (found != pairs_.end()) return found->second;
  std::vector<std::string> there = {"saved", "precise", "batch"};
  for (const auto& [name, unused] : pairs_) there.push_back(name);
  throw Error(Error::Kind::data, "the run carried no pair for population " + population +
                                     " (there are: " + joined(there) +
                                     "); a run keeps those that its spec lists in populations");
}

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

}  // namespace bnlab
