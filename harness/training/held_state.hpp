// The state of a run (harness/state.hpp), taken from all ranks into named tensors and values, and put back on each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/state.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {

struct Held {
  std::vector<NamedTensor> tensors;  // [ranks, ...shape] where the ranks' own differ
  Json values = Json::object();      // by name
  int ranks = 1;
};

class TakenState : public State {
 public:
  // `replicas`: the ranks train apart (average_weights_every), so that nothing of a tensor is the same on all.
  explicit TakenState(bool replicas) : replicas_(replicas) {}

  void tensor(const std::string& name, const at::Tensor& tensor, Across ranks) override;
  void json(const std::string& name, Json& value) override { values_[name] = value; }
  bool goes_on() const override { return false; }
  bool same_ranks() const override { return true; }

  // What was described, complete on rank 0. Called by every rank; `host` takes CPU tensors.
  Held gathered(Communicator& host) const;

 private:
  bool replicas_;
  std::vector<NamedTensor> same_, apart_;
  Json values_ = Json::object();
};

class GivenState : public State {
 public:
  GivenState(const Held& held, bool replicas, const World& world);

  // Throws Error: data where the tensor is lacking or does not fit, refused where other ranks cannot go on with it.
  void tensor(const std::string& name, const at::Tensor& tensor, Across ranks) override;
  void json(const std::string& name, Json& value) override { value = values_.at(name); }
  bool goes_on() const override { return true; }
  bool same_ranks() const override { return ranks_ == world_.size(); }

 private:
  at::Tensor of_rank(const std::string& name, const at::Tensor& held, Across ranks) const;

  std::map<std::string, at::Tensor> tensors_;
  Json values_;
  int ranks_;
  bool replicas_;
  const World& world_;
};

}  // namespace bnlab
