// What harness/training/optimizers/optimizer.hpp promises of every optimizer.
#include <gtest/gtest.h>

#include <map>

#include "harness/components/registry.hpp"
#include "harness/state.hpp"
#include "harness/training/optimizers/optimizer.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSteps = 8;

// Two parameters that are pulled towards 1 and -1, with the optimizer's defaults but a rate that changes.
class Descent {
 public:
  explicit Descent(const std::string& optimizer)
      : first_(at::linspace(-2, 2, 12, at::kDouble).view({3, 4}).requires_grad_(true)),
        second_(at::linspace(3, 5, 4, at::kDouble).requires_grad_(true)),
        optimizer_(Registered<Optimizer>::create(
            {{"name", optimizer}, {"lr", 0.05}, {"schedule", "poly"}, {"warmup_steps", 2}},
            {.parameters = named(), .norm_sites = {}, .steps = kSteps})) {}

  double loss() const {
    return (first_ - 1).square().sum().item<double>() + (second_ + 1).square().sum().item<double>();
  }

  void step(int64_t index, bool first_trains = true) {
    first_.mutable_grad() = (2 * (first_ - 1)).detach();
    second_.mutable_grad() = (2 * (second_ + 1)).detach();
    optimizer_->step(index, [&](const std::string& name) { return first_trains || name != "first.weight"; });
  }

  const at::Tensor& first() const { return first_; }
  const at::Tensor& second() const { return second_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  torch::OrderedDict<std::string, at::Tensor> named() const {
    torch::OrderedDict<std::string, at::Tensor> all;
    all.insert("first.weight", first_);
    all.insert("second.bias", second_);
    return all;
  }

  at::Tensor first_, second_;
  std::unique_ptr<Optimizer> optimizer_;
};

class EveryOptimizer : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryOptimizer, Descends) {
  Descent descent(GetParam());
  double before = descent.loss();
  for (int64_t step = 0; step < kSteps; ++step) {
    descent.step(step);
    EXPECT_LT(descent.loss(), before) << "step " << step;
    before = descent.loss();
  }
}

TEST_P(EveryOptimizer, GoesByTheRateThatItTells) {
  Descent descent(GetParam());
  EXPECT_GT(descent.optimizer().learning_rate(2), descent.optimizer().learning_rate(0));
  EXPECT_GT(descent.optimizer().learning_rate(2), descent.optimizer().learning_rate(kSteps - 1));
}

TEST_P(EveryOptimizer, LeavesFrozenParametersAndWhatIsRememberedOfThem) {
  Descent late(GetParam()), fresh(GetParam()), never(GetParam());
  const at::Tensor start = late.first().detach().clone();
  late.step(0, false);
  late.step(1, false);
  EXPECT_TRUE(at::equal(late.first(), start));
  never.step(0);
  never.step(1);
  EXPECT_TRUE(at::equal(late.second(), never.second()));  // the other one has not noticed
  late.step(2);
  fresh.step(2);
  EXPECT_TRUE(at::equal(late.first(), fresh.first()));
}

TEST_P(EveryOptimizer, WritesToTheStateThatItHandsOut) {
  Descent descent(GetParam());
  descent.step(0);
  const std::vector<at::Tensor> state = descent.optimizer().state();
  std::vector<at::Tensor> before;
  for (const at::Tensor& tensor : state) before.push_back(tensor.clone());
  descent.step(1);
  for (size_t i = 0; i < state.size(); ++i) EXPECT_FALSE(at::equal(state[i], before[i])) << i;
}

// Takes what is described the first time and puts it back the second time.
class TakenAndPutBack : public State {
 public:
  void tensor(const std::string& name, const at::Tensor& tensor, Across) override {
    if (goes_on_)
      tensor.copy_(tensors_.at(name));
    else
      tensors_[name] = tensor.clone();
  }
  void json(const std::string& name, Json& value) override {
    (goes_on_ ? value : values_[name]) = goes_on_ ? values_.at(name) : value;
  }
  bool goes_on() const override { return goes_on_; }
  bool same_ranks() const override { return true; }
  void put_back() { goes_on_ = true; }

 private:
  bool goes_on_ = false;
  std::map<std::string, at::Tensor> tensors_;
  Json values_ = Json::object();
};

TEST_P(EveryOptimizer, GoesOnFromWhatItDescribes) {
  Descent whole(GetParam()), cut(GetParam()), goes_on(GetParam());
  for (int64_t step = 0; step < kSteps; ++step) {
    whole.step(step);
    if (step < kSteps / 2) cut.step(step);
  }
  TakenAndPutBack state;
  cut.optimizer().describe(state);
  state.put_back();
  goes_on.optimizer().describe(state);
  {
    const at::NoGradGuard no_grad;
    goes_on.first().copy_(cut.first());
    goes_on.second().copy_(cut.second());
  }
  for (int64_t step = kSteps / 2; step < kSteps; ++step) goes_on.step(step);
  EXPECT_TRUE(at::equal(goes_on.first(), whole.first()));
  EXPECT_TRUE(at::equal(goes_on.second(), whole.second()));
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer, ::testing::ValuesIn(registered_names("optimizer")),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bnlab
