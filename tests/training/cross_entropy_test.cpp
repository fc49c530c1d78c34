// The loss cross_entropy against PyTorch's function and against its formula.
#include <ATen/core/Reduction.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "harness/support/error.hpp"
#include "tests/training/loss_of.hpp"

namespace bnlab {
namespace {

Json smoothed_and_weighted() {
  return {{"name", "cross_entropy"}, {"label_smoothing", 0.2}, {"class_weights", {0.5, 2.0, 3.0}}};
}

// Outputs and labels of four images' pixels, and of four images.
std::vector<std::pair<at::Tensor, at::Tensor>> pixels_and_images() {
  const at::Tensor outputs = random_outputs(4), labels = random_labels(4);
  return {{outputs, labels}, {outputs.select(3, 1).select(2, 2), at::tensor({1, -1, 0, 2}, at::kLong)}};
}

TEST(CrossEntropy, IsPyTorchsWeightedMeanOfSmoothedLabels) {
  const at::Tensor class_weights = at::tensor({0.5, 2.0, 3.0}, at::kDouble);
  const auto of_pytorch = [&](const at::Tensor& outputs, const at::Tensor& labels) {
    return at::cross_entropy_loss(outputs, labels, class_weights, at::Reduction::Mean, Task::kVoid, 0.2)
        .item<double>();
  };
  LossOf over_batch(smoothed_and_weighted()), over_towers(smoothed_and_weighted(), LossMean::tower);
  for (const auto& [outputs, labels] : pixels_and_images()) {
    EXPECT_NEAR(over_batch(outputs, labels, {1, 3}).item<double>(), of_pytorch(outputs, labels), 1e-14);
    const double first = of_pytorch(outputs.slice(0, 0, 1), labels.slice(0, 0, 1)),
                 second = of_pytorch(outputs.slice(0, 1), labels.slice(0, 1));
    EXPECT_NEAR(over_towers(outputs, labels, {1, 0, 3}).item<double>(), (first + second) / 2, 1e-14);
  }
}

// One label of class 1, one of class 2: (2 l1 + 3 l2) / 5 with l = -0.8 log p[y] smoothed by 0.2 / 3 of all
// classes.
TEST(CrossEntropy, FollowsItsFormula) {
  const at::Tensor p = at::tensor({0.5, 0.3, 0.2, 0.1, 0.2, 0.7}, at::kDouble).view({2, 3});
  const auto spread = [](double a, double b, double c) {
    return -0.2 / 3 * (0.5 * std::log(a) + 2 * std::log(b) + 3 * std::log(c));
  };
  const double expected =
      (-0.8 * 2 * std::log(0.3) + spread(0.5, 0.3, 0.2) - 0.8 * 3 * std::log(0.7) + spread(0.1, 0.2, 0.7)) /
      5;
  LossOf loss(smoothed_and_weighted());
  EXPECT_NEAR(loss(p.log(), at::tensor({1, 2}, at::kLong), {1, 1}).item<double>(), expected, 1e-15);
}

TEST(CrossEntropy, TowersWhoseLabelsHaveNoWeightAddNothing) {
  for (const LossMean mean : {LossMean::batch, LossMean::tower}) {
    LossOf loss({{"name", "cross_entropy"}, {"class_weights", {1, 0, 1}}}, mean);
    const at::Tensor outputs = random_outputs(2).requires_grad_();
    const at::Tensor total = loss(outputs, at::ones({2, 4, 6}, at::kLong), {1, 1});
    EXPECT_EQ(total.item<double>(), 0);
    total.backward();
    EXPECT_EQ(outputs.grad().abs().sum().item<double>(), 0);
  }
}

TEST(CrossEntropy, RefusesWeightsOfAnotherNumberOfClasses) {
  try {
    LossOf loss({{"name", "cross_entropy"}, {"class_weights", {1, 2}}});
    ADD_FAILURE() << "two weights for three classes were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::refused);
    EXPECT_EQ(std::string(error.what()),
              "task.loss.class_weights: expected 3 numbers, one for each class of the task, got 2");
  }
}

}  // namespace
}  // namespace bnlab
