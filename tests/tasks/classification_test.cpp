#include "harness/tasks/classification.hpp"

#include <gtest/gtest.h>

namespace bnlab::classification_test {
namespace {

// A task with labels but no data.
class Bare : public ClassificationTask {
 public:
  explicit Bare(int64_t classes) : ClassificationTask(classes, {}) {}
  std::array<int64_t, 2> training_image_size() const override { return {}; }
  std::vector<OneSize> test_sizes() const override { return {}; }
  int64_t training_samples() const override { return 0; }
  int64_t test_samples() const override { return 0; }
  Examples training(const std::vector<Draw>&) const override { return {}; }
  Examples test(int64_t, int64_t) const override { return {}; }
  std::unique_ptr<Task> validation(const std::vector<int64_t>&) const override { return nullptr; }

  using ClassificationTask::share_alike;
};

at::Tensor predicting(const std::vector<int64_t>& classes, int64_t of) {
  return at::one_hot(at::tensor(classes, at::kLong), of).to(at::kFloat);
}

// Labels 0 0 0 1 1, predicted 0 0 3 1 2, in two batches: class 0 is right in 2 of 3, class 1 in 1 of 2;
// classes 2 and 3 are predicted but never labelled.
TEST(ClassificationMetric, IsCountedOverTheWholeSplit) {
  const Bare task(4);
  const at::Tensor measured = task.measure(predicting({0, 0, 3}, 4), at::tensor({0, 0, 0}, at::kLong), 0) +
                              task.measure(predicting({1, 2}, 4), at::tensor({1, 1}, at::kLong), 3);
  EXPECT_EQ(measured.scalar_type(), at::kLong);
  EXPECT_TRUE(
      measured.equal(at::tensor({2, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, at::kLong).view({4, 4})))
      << measured;
  const Json metrics = task.metrics(measured);
  EXPECT_DOUBLE_EQ(metrics["top1"], 3.0 / 5);
  EXPECT_DOUBLE_EQ(metrics["class_accuracy"], (2.0 / 3 + 1.0 / 2) / 2);
  EXPECT_TRUE(metrics.contains(task.headline()));
}

TEST(ClassificationMetric, ARankWithoutSamplesCountsNothing) {
  const Bare task(3);
  const at::Tensor measured = task.measure(at::empty({0, 3}), at::empty({0}, at::kLong), 0);
  EXPECT_TRUE(measured.equal(at::zeros({3, 3}, at::kLong)));
  EXPECT_TRUE(task.metrics(measured)["top1"].is_null());
  EXPECT_TRUE(task.metrics(measured)["class_accuracy"].is_null());
}

TEST(ClassificationMetric, ClassesCanBeAskedForAPartOfTheirMeaning) {
  const Bare task(4);
  const at::Tensor measured =
      task.measure(predicting({2, 1, 3, 0}, 4), at::tensor({0, 1, 1, 1}, at::kLong), 0);
  EXPECT_DOUBLE_EQ(Bare::share_alike(measured, [](int64_t c) { return c % 2; }), 3.0 / 4);
  EXPECT_DOUBLE_EQ(Bare::share_alike(measured, [](int64_t c) { return c / 2; }), 2.0 / 4);
}

}  // namespace
}  // namespace bnlab::classification_test
