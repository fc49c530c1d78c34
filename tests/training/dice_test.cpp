// The losses dice and cross_entropy_dice against their definition in loops, and their gradients. That
// placement changes nothing: placement_test.cpp.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "harness/support/error.hpp"
#include "tests/training/loss_of.hpp"

namespace bnlab::dice_test {
namespace {

// One minus the mean dice of the images from `first` on, over the classes that their labels show; 0 without
// any.
double dice_by_hand(const at::Tensor& outputs, const at::Tensor& labels, int64_t first, int64_t end) {
  const auto z = outputs.to(at::kDouble).contiguous();
  double sum = 0;
  int shown = 0;
  for (int64_t c = 0; c < z.size(1); ++c) {
    double both = 0, predicted = 0, labelled = 0;
    for (int64_t n = first; n < end; ++n) {
      for (int64_t y = 0; y < labels.size(1); ++y) {
        for (int64_t x = 0; x < labels.size(2); ++x) {
          const auto label = labels[n][y][x].item<int64_t>();
          if (label == Task::kVoid) continue;
          double all = 0;
          for (int64_t k = 0; k < z.size(1); ++k) all += std::exp(z[n][k][y][x].item<double>());
          const double p = std::exp(z[n][c][y][x].item<double>()) / all;
          predicted += p;
          both += label == c ? p : 0;
          labelled += label == c ? 1 : 0;
        }
      }
    }
    if (labelled > 0) {
      sum += 2 * both / (predicted + labelled);
      ++shown;
    }
  }
  return shown == 0 ? 0 : 1 - sum / shown;
}

// Image 0 lacks class 2, image 3 has no labels; towers of 1, 0, 3 and 2 images.
at::Tensor labels_of_six() {
  at::Tensor labels = random_labels(6);
  labels[0].masked_fill_(labels[0].eq(2), 1);
  labels[3].fill_(Task::kVoid);
  return labels;
}
const std::vector<int64_t> kTowers = {1, 0, 3, 2};

LossOf dice(const std::string& over, LossMean mean = LossMean::batch) {
  return LossOf({{"name", "dice"}, {"over", over}}, mean);
}

TEST(Dice, EqualsItsDefinition) {
  const at::Tensor outputs = random_outputs(6), labels = labels_of_six();
  const auto of = [&](int64_t first, int64_t end) { return dice_by_hand(outputs, labels, first, end); };
  const double images = of(0, 1) + of(1, 2) + of(2, 3) + of(4, 5) + of(5, 6);
  EXPECT_NEAR(dice("image")(outputs, labels, kTowers).item<double>(), images / 5, 1e-12);
  EXPECT_NEAR(dice("image", LossMean::tower)(outputs, labels, kTowers).item<double>(),
              (of(0, 1) + (of(1, 2) + of(2, 3)) / 2 + (of(4, 5) + of(5, 6)) / 2) / 3, 1e-12);
  for (const LossMean mean : {LossMean::batch, LossMean::tower}) {
    EXPECT_NEAR(dice("tower", mean)(outputs, labels, kTowers).item<double>(),
                (of(0, 1) + of(1, 4) + of(4, 6)) / 3, 1e-12);
    EXPECT_NEAR(dice("batch", mean)(outputs, labels, kTowers).item<double>(), of(0, 6), 1e-12);
  }
  EXPECT_NE(of(0, 6), images / 5);
}

TEST(Dice, IsAddedToTheCrossEntropy) {
  const at::Tensor outputs = random_outputs(6), labels = labels_of_six();
  for (const std::string over : {"image", "tower", "batch"}) {
    LossOf both({{"name", "cross_entropy_dice"}, {"over", over}, {"dice_weight", 0.25}}),
        pixels(Json{{"name", "cross_entropy"}});
    EXPECT_NEAR(both(outputs, labels, kTowers).item<double>(),
                pixels(outputs, labels, kTowers).item<double>() +
                    0.25 * dice(over)(outputs, labels, kTowers).item<double>(),
                1e-12);
  }
}

TEST(Dice, GradientsAreThoseOfFiniteDifferences) {
  const at::Tensor labels = labels_of_six();
  for (const std::string over : {"image", "tower", "batch"}) {
    LossOf loss = dice(over);
    at::Tensor outputs = random_outputs(6).requires_grad_();
    loss(outputs, labels, kTowers).backward();
    const at::Tensor flat = outputs.detach().clone();
    for (int64_t i = 0; i < flat.numel(); i += 5) {
      const auto at = [&](double by) {
        const at::Tensor nudged = flat.clone();
        nudged.view(-1)[i] += by;
        return loss(nudged, labels, kTowers).item<double>();
      };
      EXPECT_NEAR(outputs.grad().view(-1)[i].item<double>(), (at(1e-5) - at(-1e-5)) / 2e-5, 1e-9)
          << over << i;
    }
    EXPECT_EQ(outputs.grad()[3].abs().sum().item<double>(), 0) << "an image without labels";
  }
}

TEST(Dice, WithoutLabelsOrImagesItIsZeroAndHasNoGradient) {
  for (const std::string over : {"image", "tower", "batch"}) {
    at::Tensor outputs = random_outputs(2).requires_grad_();
    const at::Tensor loss = dice(over)(outputs, at::full({2, 4, 6}, Task::kVoid, at::kLong), {1, 1});
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_EQ(outputs.grad().abs().sum().item<double>(), 0);
    EXPECT_EQ(dice(over)(random_outputs(0), random_labels(0), {0, 0}).item<double>(), 0);
  }
}

TEST(Dice, OutputsInBfloat16AreSummedInFloat32) {
  const at::Tensor outputs = random_outputs(2).to(at::kBFloat16), labels = random_labels(2);
  const at::Tensor loss = dice("batch")(outputs, labels, {2});
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), dice_by_hand(outputs, labels, 0, 2), 1e-5);
}

TEST(Dice, WholeImagesHaveLabelsToo) {
  const at::Tensor outputs = random_outputs(4).mean({2, 3}), labels = at::tensor({0, 1, 2, 1}, at::kLong);
  EXPECT_NEAR(dice("batch")(outputs, labels, {4}).item<double>(),
              dice_by_hand(outputs.view({4, 3, 1, 1}), labels.view({4, 1, 1}), 0, 4), 1e-12);
}

TEST(Dice, OfSeveralImagesNeedsThemInOnePass) {
  for (const auto& [over, passes] : {std::pair("tower", 2), {"batch", 2}, {"image", 2}, {"batch", 1}}) {
    Problems problems;
    check_component("loss", {{"name", "dice"}, {"over", over}}, "task.loss", {.passes_per_step = passes},
                    problems);
    EXPECT_EQ(problems.empty(), passes == 1 || over == std::string("image")) << over;
  }
}

}  // namespace
}  // namespace bnlab::dice_test
