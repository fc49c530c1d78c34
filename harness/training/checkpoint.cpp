// Weights of a Trainer, out and in: what a run leaves in its folder, and what another one starts from.
#include <map>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

constexpr const char* kHead = "head.";  // names of the head's parameters begin with it, in every model

bool is_head(const std::string& name) {
  return name.rfind(kHead, 0) == 0;
}

std::string listed(const char* title, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? title : ", ") + name;
  }
  return text;
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

}  // namespace

std::vector<NamedTensor> Trainer::tensors() const {
  std::vector<NamedTensor> all;
  for (const auto& p : network_->named_parameters()) {
    all.push_back({p.key(), p.value()});
  }
  for (const auto& b : network_->named_buffers()) {
    all.push_back({b.key(), b.value()});
  }
  return all;
}

int64_t Trainer::save_weights(const std::string& run_dir) {
  const at::NoGradGuard no_grad;
  const bool writes = world_.rank() == 0;
  show({});
  const int64_t bytes = writes ? write_safetensors(run_dir + "/" + kWeightsFile, tensors()) : 0;
  std::vector<NamedTensor> pairs;
  for (const auto& [name, population] : populations()) {
    if (population.is_shadow()) {
      show(population);
      for (const auto& buffer : network_->named_buffers()) {
        pairs.push_back({name + "/" + buffer.key(), buffer.value().clone()});
      }
    }
  }
  show_own();
  if (writes && !pairs.empty()) {
    write_safetensors(run_dir + "/" + kPopulationsFile, pairs);
  }
  return bytes;
}

void Trainer::load_weights(const InitFrom& from) {
  std::map<std::string, at::Tensor> given;
  for (NamedTensor& t : read_safetensors(from.file)) {
    if (!from.features_only || !is_head(t.name)) {
      given.emplace(std::move(t.name), std::move(t.tensor));
    }
  }
  std::vector<std::string> missing, surplus;
  for (NamedTensor& own : tensors()) {
    const auto found = given.find(own.name);
    if (found != given.end()) {
      check_same(from.file, own, found->second);
      own.tensor.copy_(found->second);
      given.erase(found);
    } else if (!from.features_only || !is_head(own.name)) {
      missing.push_back(own.name);
    }
  }
  for (const auto& [name, unused] : given) {
    surplus.push_back(name);
  }
  if (!missing.empty() || !surplus.empty()) {
    throw Error(Error::Kind::refused, from.file + " does not fit this model and strategy" +
                                          listed("; it lacks: ", missing) +
                                          listed("; nothing here takes: ", surplus));
  }
  for (auto& buffer : network_->buffers()) {
    world_.gradients().broadcast(buffer, 0, Purpose::control);  // rank 0's, as the parameters
  }
  if (RunningStatistics* statistics = strategy_->running_statistics()) {
    statistics->start_from_buffers();
  }
}

}  // namespace bnlab
