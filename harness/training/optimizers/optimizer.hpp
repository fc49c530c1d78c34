// How weights change. One file per optimizer in optimizers/, registered there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/network.hpp"
#include "harness/state.hpp"
#include "harness/support/upload.hpp"

namespace bnlab {

class Optimizer {
 public:
  static constexpr const char* kFamily = "optimizer";

  struct Context {
    torch::OrderedDict<std::string, at::Tensor> parameters;  // by name, as the network lists them
    std::vector<NormSite> norm_sites;
    int64_t steps = 1;  // in the whole run, for schedules
  };
  using Trainable = std::function<bool(const std::string& parameter)>;

  virtual ~Optimizer() = default;

  virtual double learning_rate(int64_t step) const = 0;
  // One update with the gradients at hand; parameters that are not trainable stay unchanged to the bit, and
  // so does what is remembered of them. Where updates may be recorded (StepGraphs::update) the numbers that
  // change from step to step come from `bytes`; else it is null. The weights are the same in both cases.
  virtual void step(int64_t step, const Trainable& trainable, StepBytes* bytes) = 0;
  void step(int64_t step, const Trainable& trainable) { this->step(step, trainable, nullptr); }
  // Whether it can take them from there.
  virtual bool can_be_recorded() const = 0;
  // The norm of all gradients together, [], as they were before the last update. Asked while parameters still
  // have them. Nothing waits for the device.
  virtual at::Tensor gradient_norm() const = 0;
  // All tensors that it remembers from step to step (momenta), in the order of the parameters. Every step
  // writes to them; where ranks average their weights, these are averaged, too.
  virtual std::vector<at::Tensor> state() const = 0;
  // These tensors, and whatever else it remembers.
  virtual void describe(State& described) {
    const std::vector<at::Tensor> tensors = state();
    for (size_t i = 0; i < tensors.size(); ++i)
      described.tensor("optimizer." + std::to_string(i), tensors[i]);
  }
};

}  // namespace bnlab
