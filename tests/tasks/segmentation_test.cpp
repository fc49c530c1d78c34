#include "harness/tasks/segmentation.hpp"

#include <gtest/gtest.h>

namespace bnlab::segmentation_test {
namespace {

// A task with labels but no data.
class Bare : public SegmentationTask {
 public:
  explicit Bare(int64_t classes, const std::vector<std::string>& groups = {})
      : SegmentationTask(classes, {}) {
    if (!groups.empty()) set_test_groups(groups);
  }
  std::array<int64_t, 2> training_image_size() const override { return {}; }
  std::vector<OneSize> test_sizes() const override { return {}; }
  int64_t training_samples() const override { return 0; }
  int64_t test_samples() const override { return 0; }
  bool may_have_void() const override { return true; }
  Examples training(const std::vector<Draw>&) const override { return {}; }
  Examples test(int64_t, int64_t) const override { return {}; }
  std::unique_ptr<Task> validation(const std::vector<int64_t>&) const override { return nullptr; }
};

// Outputs that predict the given classes.
at::Tensor predicting(const at::Tensor& predicted, int64_t classes) {
  return at::one_hot(predicted, classes).permute({0, 3, 1, 2}).to(at::kFloat);
}

// One row of six pixels per image: labels 0 0 0 1 1 void, predicted 0 0 1 1 2 2; class 3 nowhere.
//   IoU of 0: 2 / 3, of 1: 1 / 3; 2 is predicted but never labelled, so it is left out.
TEST(SegmentationMetric, EqualsAConfusionWorkedOutByHand) {
  const Bare task(4);
  const auto labels = at::tensor({0, 0, 0, 1, 1, -1}, at::kLong).view({1, 1, 6});
  const auto predicted = at::tensor({0, 0, 1, 1, 2, 2}, at::kLong).view({1, 1, 6});
  const auto measured = task.measure(predicting(predicted, 4), labels, 0);
  EXPECT_EQ(measured.scalar_type(), at::kLong);
  const auto expected =
      at::tensor({2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, at::kLong).view({1, 4, 4});
  EXPECT_TRUE(measured.equal(expected)) << measured;
  const Json metrics = task.metrics(measured);
  EXPECT_DOUBLE_EQ(metrics["class_iou"][0], 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics["class_iou"][1], 1.0 / 3);
  EXPECT_TRUE(metrics["class_iou"][2].is_null());
  EXPECT_TRUE(metrics["class_iou"][3].is_null());
  EXPECT_DOUBLE_EQ(metrics["mean_iou"], 0.5);
  EXPECT_DOUBLE_EQ(metrics["mean_dice"], (4.0 / 5 + 2.0 / 4) / 2);
  EXPECT_DOUBLE_EQ(metrics["pixel_accuracy"], 3.0 / 5);
  EXPECT_DOUBLE_EQ(metrics["class_accuracy"], (2.0 / 3 + 1.0 / 2) / 2);
  EXPECT_FALSE(metrics.contains("groups"));
}

TEST(SegmentationMetric, GroupsAreScoredApartAndTogether) {
  const Bare task(2, {"night", "day", "day"});
  const auto labels = at::tensor({0, 0, 1, 1, 0, 1}, at::kLong).view({3, 1, 2});
  const auto predicted = at::tensor({0, 0, 1, 1, 1, 1}, at::kLong).view({3, 1, 2});
  const auto outputs = predicting(predicted, 2);
  // Two batches, of samples 0-1 and 2, summed.
  const auto measured = task.measure(outputs.narrow(0, 0, 2), labels.narrow(0, 0, 2), 0) +
                        task.measure(outputs.narrow(0, 2, 1), labels.narrow(0, 2, 1), 2);
  const Json metrics = task.metrics(measured);
  EXPECT_DOUBLE_EQ(metrics["groups"]["night"]["mean_iou"], 1.0);  // of the one class that it shows
  EXPECT_DOUBLE_EQ(metrics["groups"]["day"]["pixel_accuracy"], 3.0 / 4);
  EXPECT_DOUBLE_EQ(metrics["groups"]["day"]["mean_iou"], (0.0 + 3.0 / 4) / 2);
  EXPECT_DOUBLE_EQ(metrics["pixel_accuracy"], 5.0 / 6);
  EXPECT_DOUBLE_EQ(metrics["mean_iou"], (2.0 / 3 + 3.0 / 4) / 2);
}

TEST(SegmentationMetric, WithoutAnyValidLabelIsNull) {
  const Json metrics = Bare(2).metrics(at::zeros({1, 2, 2}, at::kLong));
  EXPECT_TRUE(metrics["mean_iou"].is_null());
  EXPECT_TRUE(metrics["mean_dice"].is_null());
  EXPECT_TRUE(metrics["pixel_accuracy"].is_null());
}

}  // namespace
}  // namespace bnlab::segmentation_test
