#include "harness/training/checkpoint.hpp"

#include <torch/types.h>

#include <map>
#include <utility>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

constexpr const char* kHead = "head.";  // names of the head's parameters begin with it, in every model

bool is_head(const std::string& name) {
  return name.rfind(kHead, 0) == 0;
}

std::string listed(const char* title, const std::vector<std::string>& names) {
  return names.empty() ? "" : title + joined(names);
}

void check_same(const std::string& file, const NamedTensor& own, const at::Tensor& given) {
  if (given.scalar_type() != own.tensor.scalar_type() || given.sizes() != own.tensor.sizes()) {
    const auto what = [](const at::Tensor& t) {
      return std::string(c10::toString(t.scalar_type())) + " " + shown(Json(t.sizes().vec()));
    };
    throw Error(Error::Kind::refused, file + ": " + own.name + ": expected " + what(own.tensor) + ", got " +
                                          what(given) +
                                          "; the spec's model, task and precision must be those " +
                                          "that the weights were trained with");
  }
}

// Parameters, then buffers.
std::vector<NamedTensor> tensors_of(const Network& network) {
  std::vector<NamedTensor> all;
  for (const auto& tensors : {network.named_parameters(), network.named_buffers()}) {
    for (const auto& [name, tensor] : tensors.pairs()) {
      all.push_back({name, tensor});
    }
  }
  return all;
}

}  // namespace

int64_t save_weights(const Network& network, Evaluator& evaluator, int64_t steps_done,
                     const std::string& run_dir, bool writes) {
  evaluator.show({}, steps_done);
  const int64_t bytes = writes ? write_safetensors(run_dir + "/" + kWeightsFile, tensors_of(network)) : 0;
  std::vector<NamedTensor> pairs;
  for (const auto& [name, population] : evaluator.populations()) {
    if (population.is_shadow()) {
      evaluator.show(population, steps_done);
      for (const auto& buffer : network.named_buffers()) {
        pairs.push_back({name + "/" + buffer.key(), buffer.value().clone()});
      }
    }
  }
  evaluator.show_own();
  if (writes && !pairs.empty()) {
    write_safetensors(run_dir + "/" + kPopulationsFile, pairs);
  }
  return bytes;
}

void load_weights(const InitFrom& from, Network& network) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> given;
  for (NamedTensor& t : read_safetensors(from.file)) {
    if (!from.features_only || !is_head(t.name)) {
      given.emplace(std::move(t.name), std::move(t.tensor));
    }
  }
  std::vector<std::string> missing;
  for (NamedTensor& own : tensors_of(network)) {
    const auto found = given.find(own.name);
    if (found != given.end()) {
      check_same(from.file, own, found->second);
      own.tensor.copy_(found->second);
      given.erase(found);
    } else if (!from.features_only || !is_head(own.name)) {
      missing.push_back(own.name);
    }
  }
  const auto surplus = mapped(given, [](const auto& entry) { return entry.first; });
  if (!missing.empty() || !surplus.empty()) {
    throw Error(Error::Kind::refused, from.file + " does not fit this model and strategy" +
                                          listed("; it lacks: ", missing) +
                                          listed("; nothing here takes: ", surplus));
  }
}

}  // namespace bnlab
