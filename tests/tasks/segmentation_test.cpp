#include "harness/tasks/segmentation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bnlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A task with labels but no data.
class Bare : public SegmentationTask {
 public:
  explicit Bare(int64_t classes, const std::vector<std::string>& groups = {},
                const Json& loss = {{"name", "cross_entropy"}})
      : SegmentationTask(classes, loss) {
    if (!groups.empty()) {
      set_test_groups(groups);
    }
  }
  std::array<int64_t, 2> training_image_size() const override { return {}; }
  std::array<int64_t, 2> test_image_size() const override { return {}; }
  int64_t training_samples() const override { return 0; }
  int64_t test_samples() const override { return 0; }
  bool may_have_void() const override { return true; }
  Examples training(const std::vector<Draw>&) const override { return {}; }
  Examples test(int64_t, int64_t) const override { return {}; }
};

at::Tensor random_outputs(int64_t n) {
  at::manual_seed(5);
  return at::randn({n, 3, 4, 6}, at::kDouble);
}

at::Tensor random_labels(int64_t n) {  // -1 (void), 0, 1, 2
  at::manual_seed(6);
  return at::randint(-1, 3, {n, 4, 6}, at::kLong);
}

// The definition of the loss, one pixel after the other.
double loss_by_hand(const at::Tensor& outputs, const at::Tensor& labels, const std::vector<int64_t>& offsets,
                    const std::vector<double>& weights) {
  const auto z = outputs.to(at::kDouble);
  double total = 0;
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    for (int64_t n = offsets[g]; n < offsets[g + 1]; ++n) {
      for (int64_t y = 0; y < labels.size(1); ++y) {
        for (int64_t x = 0; x < labels.size(2); ++x) {
          const auto label = labels[n][y][x].item<int64_t>();
          if (label == Task::kVoid) {
            continue;
          }
          double sum = 0;
          for (int64_t c = 0; c < z.size(1); ++c) {
            sum += std::exp(z[n][c][y][x].item<double>());
          }
          total += weights[g] * (std::log(sum) - z[n][label][y][x].item<double>());
        }
      }
    }
  }
  return total;
}

TEST(SegmentationLoss, EqualsTheDefinitionWithOneWeightPerSlice) {
  const auto outputs = random_outputs(5), labels = random_labels(5);
  const std::vector<int64_t> offsets = {0, 2, 2, 5};  // the middle slice is empty
  const std::vector<double> weights = {0.5, 7, 0.125};
  const double expected = loss_by_hand(outputs, labels, offsets, weights);
  const auto loss = Bare(3).loss(outputs, labels, offsets, at::tensor(weights, at::kDouble));
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * expected);
}

TEST(SegmentationLoss, EqualsTheDefinitionWithOneWeightForAll) {
  const auto outputs = random_outputs(4), labels = random_labels(4);
  const double expected = loss_by_hand(outputs, labels, {0, 2, 4}, {0.25, 0.25});
  const auto weight = at::full({1}, 0.25, at::kDouble);
  const Bare task(3);
  for (const auto& [offsets, weights] : std::vector<std::pair<std::vector<int64_t>, at::Tensor>>{
           {{0, 4}, weight}, {{0, 2, 4}, weight.expand({2})}, {{0, 2, 4}, weight.repeat({2})}}) {
    EXPECT_NEAR(task.loss(outputs, labels, offsets, weights).item<double>(), expected, 1e-12 * expected);
  }
}

TEST(SegmentationLoss, OutputsInBfloat16AreSummedInFloat32) {
  const auto outputs = random_outputs(2).to(at::kBFloat16), labels = random_labels(2);
  const double expected = loss_by_hand(outputs, labels, {0, 1, 2}, {1, 2});
  const auto loss = Bare(3).loss(outputs, labels, {0, 1, 2}, at::tensor({1.0f, 2.0f}));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-5 * expected);  // float32 sums of 48 terms
}

// A slice without valid labels has the weight 1 / 0 (or 0 / 0): it adds 0, and its gradient is 0.
TEST(SegmentationLoss, SlicesWithoutValidLabelsAddNothingWhateverTheirWeight) {
  auto labels = random_labels(4);
  labels.slice(0, 2, 4).fill_(Task::kVoid);
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    const auto outputs = random_outputs(4).requires_grad_();
    const double expected = loss_by_hand(outputs, labels, {0, 2}, {0.5});
    const auto loss = Bare(3).loss(outputs, labels, {0, 2, 4}, at::tensor({0.5, bad}, at::kDouble));
    EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * expected);
    loss.backward();
    EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>());
    EXPECT_GT(outputs.grad().slice(0, 0, 2).abs().sum().item<double>(), 0);
    EXPECT_EQ(outputs.grad().slice(0, 2, 4).abs().sum().item<double>(), 0);
  }
}

TEST(SegmentationLoss, ABatchWithoutValidLabelsGivesZeroAndNoGradient) {
  const auto labels = at::full({2, 4, 6}, Task::kVoid, at::kLong);
  for (const auto& weights :
       {at::full({1}, kInfinity, at::kDouble).expand({2}), at::full({2}, std::nan(""), at::kDouble)}) {
    const auto outputs = random_outputs(2).requires_grad_();
    const auto loss = Bare(3).loss(outputs, labels, {0, 1, 2}, weights);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_EQ(outputs.grad().abs().sum().item<double>(), 0);
  }
}

TEST(SegmentationLoss, ARankWithoutSamplesGivesZero) {
  const auto outputs = at::zeros({0, 3, 4, 6}, at::kDouble).requires_grad_();
  const auto labels = at::zeros({0, 4, 6}, at::kLong);
  const Bare task(3);
  const auto weights = at::full({2}, kInfinity, at::kDouble);
  const auto loss = task.loss(outputs, labels, {0, 0, 0}, weights);
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(task.loss(outputs, labels, {0, 0}, weights.slice(0, 0, 1)).item<double>(), 0);
  EXPECT_EQ(task.valid_counts(labels, {0, 0, 0}).sum().item<double>(), 0);
}

TEST(SegmentationLoss, ValidCountsLeaveVoidOut) {
  auto labels = at::zeros({4, 4, 6}, at::kLong);
  labels[0][0].fill_(Task::kVoid);  // 6 of 24
  labels[3].fill_(Task::kVoid);
  const auto counts = Bare(3).valid_counts(labels, {0, 2, 2, 3, 4});
  EXPECT_EQ(counts.scalar_type(), at::kDouble);
  EXPECT_TRUE(counts.equal(at::tensor({42.0, 0.0, 24.0, 0.0}, at::kDouble)));
}

Bare ohem(double threshold, int64_t min_kept) {
  return Bare(3, {}, {{"name", "ohem"}, {"threshold", threshold}, {"min_kept", min_kept}});
}

// One image: the true class of its pixels has these probabilities (the other two share the rest).
Examples with_probabilities(const std::vector<double>& probabilities) {
  const auto p = at::tensor(probabilities, at::kDouble).view({1, 1, 1, -1});
  const auto others = (1 - p) / 2;
  return {at::cat({others, p, others}, 1).log(), at::ones({1, 1, p.numel()}, at::kLong)};
}

at::Tensor selected(const Bare& task, const Examples& batch, const std::vector<int64_t>& offsets) {
  return task.select_labels(batch.images, batch.labels, offsets);
}

at::Tensor kept(const std::vector<int64_t>& ones) {  // 1 where the label stays, 0 where it becomes void
  return at::tensor(ones, at::kLong).view({1, 1, -1}) * 2 - 1;
}

TEST(Ohem, KeepsThePixelsWhoseTrueClassIsBelowTheThreshold) {
  const Examples batch = with_probabilities({0.9, 0.1, 0.8, 0.6, 0.5, 0.75});
  EXPECT_TRUE(selected(ohem(0.7, 0), batch, {0, 1}).equal(kept({0, 1, 0, 1, 1, 0})));
  EXPECT_TRUE(selected(ohem(0.7, 3), batch, {0, 1}).equal(kept({0, 1, 0, 1, 1, 0})));
}

TEST(Ohem, RaisesTheThresholdUntilEnoughPixelsAreKept) {
  const Examples batch = with_probabilities({0.9, 0.1, 0.8, 0.6, 0.5, 0.75});
  EXPECT_TRUE(selected(ohem(0.2, 2), batch, {0, 1}).equal(kept({0, 1, 0, 0, 1, 0})));
  EXPECT_TRUE(selected(ohem(0.7, 5), batch, {0, 1}).equal(kept({0, 1, 1, 1, 1, 1})));
  EXPECT_TRUE(selected(ohem(0.7, 1000), batch, {0, 1}).equal(batch.labels));
}

TEST(Ohem, VoidStaysVoidAndDoesNotCountAsKept) {
  Examples batch = with_probabilities({0.1, 0.95, 0.2, 0.9, 0.8, 0.85});
  batch.labels.masked_fill_(at::tensor({1, 0, 1, 0, 0, 0}, at::kLong).view({1, 1, 6}).eq(1), Task::kVoid);
  EXPECT_TRUE(selected(ohem(0.5, 2), batch, {0, 1}).equal(kept({0, 0, 0, 0, 1, 1})));
  EXPECT_TRUE(selected(ohem(0.5, 5), batch, {0, 1}).equal(batch.labels));
  batch.labels.fill_(Task::kVoid);
  EXPECT_TRUE(selected(ohem(0.5, 2), batch, {0, 1}).equal(batch.labels));
}

TEST(Ohem, ThresholdOneKeepsEverything) {
  const auto outputs = random_outputs(4) * 100, labels = random_labels(4);  // probabilities of exactly 1, too
  EXPECT_TRUE(ohem(1, 0).select_labels(outputs, labels, {0, 2, 4}).equal(labels));
  EXPECT_TRUE(ohem(1, 0).select_labels(outputs.to(at::kFloat), labels, {0, 2, 4}).equal(labels));
}

// Each tower by itself: an image gives the same selection whatever stands beside it in other towers, and a
// tower keeps min_kept pixels for each of its images.
TEST(Ohem, SelectsInsideEachTower) {
  const auto outputs = random_outputs(6), labels = random_labels(6);
  outputs[0].mul_(3);  // image 0 becomes harder than the others
  const Bare task = ohem(1e-9, 4);
  const auto all = task.select_labels(outputs, labels, {0, 1, 1, 3, 6});
  const auto counts = task.valid_counts(all, {0, 1, 1, 3, 6});
  EXPECT_TRUE(counts.equal(at::tensor({4.0, 0.0, 8.0, 12.0}, at::kDouble))) << counts;
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 3}, {3, 6}}) {
    const auto alone =
        task.select_labels(outputs.slice(0, begin, end), labels.slice(0, begin, end), {0, end - begin});
    EXPECT_TRUE(alone.equal(all.slice(0, begin, end)));
  }
  EXPECT_FALSE(task.select_labels(outputs, labels, {0, 6}).equal(all));
}

TEST(Ohem, LeavesTheBatchAloneAndTakesNoPartInTheGradient) {
  const auto outputs = random_outputs(2).requires_grad_();
  const auto labels = random_labels(2);
  const auto labels_before = labels.clone(), outputs_before = outputs.detach().clone();
  const auto chosen = ohem(0.3, 2).select_labels(outputs, labels, {0, 1, 2});
  EXPECT_TRUE(labels.equal(labels_before));
  EXPECT_TRUE(outputs.equal(outputs_before));
  EXPECT_FALSE(chosen.equal(labels));
  EXPECT_TRUE(chosen.eq(labels).logical_or(chosen.eq(Task::kVoid)).all().item<bool>());
  EXPECT_FALSE(chosen.requires_grad());
  EXPECT_TRUE(ohem(0.3, 2).selects_labels());
}

TEST(Ohem, OutputsThatAreNotNumbersStayInTheLoss) {  // so that the loop sees the run diverge
  Examples batch = with_probabilities({0.9, 0.1, 0.8});
  batch.images[0][0][0][1] = std::nan("");
  const auto chosen = selected(ohem(0.05, 2), batch, {0, 1});
  EXPECT_EQ(chosen[0][0][1].item<int64_t>(), 1);
}

TEST(Ohem, CrossEntropyTakesAllLabels) {
  const auto labels = random_labels(2);
  EXPECT_FALSE(Bare(3).selects_labels());
  EXPECT_TRUE(Bare(3).select_labels(random_outputs(2), labels, {0, 2}).is_same(labels));
}

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
  EXPECT_TRUE(metrics["pixel_accuracy"].is_null());
}

}  // namespace
}  // namespace bnlab
