// One rank's share of a layer case: a network of the one site, its state, its steps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/world.hpp"
#include "harness/layer/layer_case.hpp"

namespace bnlab {

class LayerRank {
 public:
  // Both outlive this. `key` is kept at the part of the case that is being done, for messages.
  LayerRank(const LayerCase& layer_case, World& world, std::string& key);

  // To be called for 0, 1, ... in turn. Outputs and input gradients are of this rank's towers, the gradients
  // of weight and bias its share of the sums; all on the CPU.
  LayerStepAnswer step(size_t index);
  int64_t nonfinite_channels() const;
  Strategy& strategy() { return built_.strategy(); }
  // Parameters and buffers of the site, by their name in it.
  const std::map<std::string, at::Tensor>& state() const { return state_; }

 private:
  static BuiltNetwork built(const LayerCase& layer_case, World& world, std::string& key);
  void load_norm();
  void load_conv(const LayerConv& conv);
  void load(const std::string& key, const std::string& name, const at::Tensor& value);
  bool has(const std::string& name) const { return state_.count(name) > 0; }
  [[noreturn]] void refuse(const std::string& message) const;

  void check_rows(const LayerStep& step) const;
  Batch batch_of(const LayerStep& step) const;
  void apply(const LayerStep& step, const Batch& batch, LayerStepAnswer& answer);
  at::Tensor output_gradients(const LayerStep& step, const std::vector<at::Tensor>& outputs) const;
  at::Tensor gradient(const std::string& name) const;
  int64_t steps_done() const { return static_cast<int64_t>(trained_.size()); }
  void load_into_buffers(Population::Kind population);
  void restore();

  const LayerCase& case_;
  World& world_;
  std::string& key_;
  BuiltNetwork built_;
  std::map<std::string, at::Tensor> state_;
  std::vector<Batch> trained_;  // the batches of the training steps so far
};

}  // namespace bnlab
