#include "harness/training/endings/best_weights.hpp"

#include <torch/types.h>

#include <utility>

namespace bnlab {

// Copies what is described, into the same memory each time.
class BestWeights::Taking : public State {
 public:
  explicit Taking(BestWeights& best) : best_(best) {}

  void tensor(const std::string& name, const at::Tensor& tensor, Across ranks) override {
    const at::NoGradGuard no_grad;
    if (next_ == best_.tensors_.size())
      best_.tensors_.push_back({name, tensor.detach().clone(), ranks});
    else
      best_.tensors_[next_].tensor.copy_(tensor);
    ++next_;
  }
  void json(const std::string& name, Json& value) override { best_.values_[name] = value; }
  bool goes_on() const override { return false; }
  bool same_ranks() const override { return true; }

 private:
  BestWeights& best_;
  size_t next_ = 0;
};

class BestWeights::PuttingBack : public State {
 public:
  explicit PuttingBack(const BestWeights& best) : best_(best) {}

  void tensor(const std::string&, const at::Tensor& tensor, Across) override {
    const at::NoGradGuard no_grad;
    tensor.copy_(best_.tensors_.at(next_++).tensor);
  }
  void json(const std::string& name, Json& value) override { value = best_.values_.at(name); }
  bool goes_on() const override { return true; }
  bool same_ranks() const override { return true; }

 private:
  const BestWeights& best_;
  size_t next_ = 0;
};

BestWeights::BestWeights(Describe describe) : describe_(std::move(describe)) {
  keep();
}

void BestWeights::keep() {
  Taking state(*this);
  describe_(state);
}

void BestWeights::offer(int64_t steps_done, const Json& score) {
  const bool is_better = score.is_number() && (!score_.is_number() || score > score_);
  if (evaluations_++ == 0 || is_better) {
    step_ = steps_done;
    score_ = score;
    keep();
  }
}

void BestWeights::restore() {
  PuttingBack state(*this);
  describe_(state);
}

void BestWeights::describe(State& state) {
  for (const Kept& kept : tensors_) state.tensor("best." + kept.name, kept.tensor, kept.ranks);
  for (auto& [name, value] : values_) state.json("best." + name, value);
  state.value("best.step", step_);
  state.value("best.evaluations", evaluations_);
  state.json("best.score", score_);
}

}  // namespace bnlab
