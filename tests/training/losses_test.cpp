// The losses: weighted cross-entropy against its definition, and what hard-example mining leaves of the
// labels.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <tuple>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/loss.hpp"
#include "tests/training/loss_of.hpp"

namespace bnlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
          if (label == Task::kVoid) continue;
          double sum = 0;
          for (int64_t c = 0; c < z.size(1); ++c) sum += std::exp(z[n][c][y][x].item<double>());
          total += weights[g] * (std::log(sum) - z[n][label][y][x].item<double>());
        }
      }
    }
  }
  return total;
}

TEST(WeightedCrossEntropy, EqualsTheDefinitionWithOneWeightPerSlice) {
  const auto outputs = random_outputs(5), labels = random_labels(5);
  const std::vector<int64_t> offsets = {0, 2, 2, 5};  // the middle slice is empty
  const std::vector<double> weights = {0.5, 7, 0.125};
  const double expected = loss_by_hand(outputs, labels, offsets, weights);
  const auto loss = weighted_cross_entropy(outputs, labels, offsets, at::tensor(weights, at::kDouble));
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * expected);
}

TEST(WeightedCrossEntropy, EqualsTheDefinitionWithOneWeightForAll) {
  const auto outputs = random_outputs(4), labels = random_labels(4);
  const double expected = loss_by_hand(outputs, labels, {0, 2, 4}, {0.25, 0.25});
  const auto weight = at::full({1}, 0.25, at::kDouble);
  for (const auto& [offsets, weights] : std::vector<std::pair<std::vector<int64_t>, at::Tensor>>{
           {{0, 4}, weight}, {{0, 2, 4}, weight.expand({2})}, {{0, 2, 4}, weight.repeat({2})}}) {
    EXPECT_NEAR(weighted_cross_entropy(outputs, labels, offsets, weights).item<double>(), expected,
                1e-12 * expected);
  }
}

TEST(WeightedCrossEntropy, OutputsInBfloat16AreSummedInFloat32) {
  const auto outputs = random_outputs(2).to(at::kBFloat16), labels = random_labels(2);
  const double expected = loss_by_hand(outputs, labels, {0, 1, 2}, {1, 2});
  const auto loss = weighted_cross_entropy(outputs, labels, {0, 1, 2}, at::tensor({1.0f, 2.0f}));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-5 * expected);  // float32 sums of 48 terms
}

// A slice without valid labels has the weight 1 / 0 (or 0 / 0): it adds 0, and its gradient is 0.
TEST(WeightedCrossEntropy, SlicesWithoutValidLabelsAddNothingWhateverTheirWeight) {
  auto labels = random_labels(4);
  labels.slice(0, 2, 4).fill_(Task::kVoid);
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    const auto outputs = random_outputs(4).requires_grad_();
    const double expected = loss_by_hand(outputs, labels, {0, 2}, {0.5});
    const auto loss = weighted_cross_entropy(outputs, labels, {0, 2, 4}, at::tensor({0.5, bad}, at::kDouble));
    EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * expected);
    loss.backward();
    EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>());
    EXPECT_GT(outputs.grad().slice(0, 0, 2).abs().sum().item<double>(), 0);
    EXPECT_EQ(outputs.grad().slice(0, 2, 4).abs().sum().item<double>(), 0);
  }
}

TEST(WeightedCrossEntropy, ABatchWithoutValidLabelsGivesZeroAndNoGradient) {
  const auto labels = at::full({2, 4, 6}, Task::kVoid, at::kLong);
  for (const auto& weights :
       {at::full({1}, kInfinity, at::kDouble).expand({2}), at::full({2}, std::nan(""), at::kDouble)}) {
    const auto outputs = random_outputs(2).requires_grad_();
    const auto loss = weighted_cross_entropy(outputs, labels, {0, 1, 2}, weights);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_EQ(outputs.grad().abs().sum().item<double>(), 0);
  }
}

TEST(WeightedCrossEntropy, ARankWithoutSamplesGivesZero) {
  const auto outputs = at::zeros({0, 3, 4, 6}, at::kDouble).requires_grad_();
  const auto labels = at::zeros({0, 4, 6}, at::kLong);
  const auto weights = at::full({2}, kInfinity, at::kDouble);
  const auto loss = weighted_cross_entropy(outputs, labels, {0, 0, 0}, weights);
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(weighted_cross_entropy(outputs, labels, {0, 0}, weights.slice(0, 0, 1)).item<double>(), 0);
}

LossOf ohem(double threshold, int64_t min_kept) {
  return LossOf({{"name", "ohem"}, {"threshold", threshold}, {"min_kept", min_kept}});
}

// One image: the true class of its pixels has these probabilities (the other two share the rest).
Examples with_probabilities(const std::vector<double>& probabilities) {
  const auto p = at::tensor(probabilities, at::kDouble).view({1, 1, 1, -1});
  const auto others = (1 - p) / 2;
  return {at::cat({others, p, others}, 1).log(), at::ones({1, 1, p.numel()}, at::kLong)};
}

at::Tensor chosen(LossOf loss, const Examples& batch) {
  return loss.chosen(batch.images, batch.labels, {1});
}

at::Tensor kept(const std::vector<int64_t>& ones) {  // 1 where the label stays, 0 where it becomes void
  return at::tensor(ones, at::kLong).view({1, 1, -1}) * 2 - 1;
}

TEST(Ohem, KeepsThePixelsWhoseTrueClassIsBelowTheThreshold) {
  const Examples batch = with_probabilities({0.9, 0.1, 0.8, 0.6, 0.5, 0.75});
  EXPECT_TRUE(chosen(ohem(0.7, 0), batch).equal(kept({0, 1, 0, 1, 1, 0})));
  EXPECT_TRUE(chosen(ohem(0.7, 3), batch).equal(kept({0, 1, 0, 1, 1, 0})));
}

TEST(Ohem, RaisesTheThresholdUntilEnoughPixelsAreKept) {
  const Examples batch = with_probabilities({0.9, 0.1, 0.8, 0.6, 0.5, 0.75});
  EXPECT_TRUE(chosen(ohem(0.2, 2), batch).equal(kept({0, 1, 0, 0, 1, 0})));
  EXPECT_TRUE(chosen(ohem(0.7, 5), batch).equal(kept({0, 1, 1, 1, 1, 1})));
  EXPECT_TRUE(chosen(ohem(0.7, 1000), batch).equal(batch.labels));
}

TEST(Ohem, VoidStaysVoidAndDoesNotCountAsKept) {
  Examples batch = with_probabilities({0.1, 0.95, 0.2, 0.9, 0.8, 0.85});
  batch.labels.masked_fill_(at::tensor({1, 0, 1, 0, 0, 0}, at::kLong).view({1, 1, 6}).eq(1), Task::kVoid);
  EXPECT_TRUE(chosen(ohem(0.5, 2), batch).equal(kept({0, 0, 0, 0, 1, 1})));
  EXPECT_TRUE(chosen(ohem(0.5, 5), batch).equal(batch.labels));
  batch.labels.fill_(Task::kVoid);
  EXPECT_TRUE(chosen(ohem(0.5, 2), batch).equal(batch.labels));
}

TEST(Ohem, ThresholdOneKeepsEverything) {
  const auto outputs = random_outputs(4) * 100, labels = random_labels(4);  // probabilities of exactly 1, too
  LossOf all(Json{{"name", "cross_entropy"}}), hard = ohem(1, 0);
  EXPECT_EQ(hard(outputs, labels, {2, 2}).item<double>(), all(outputs, labels, {2, 2}).item<double>());
  const auto single = outputs.to(at::kFloat);
  EXPECT_EQ(hard(single, labels, {2, 2}).item<double>(), all(single, labels, {2, 2}).item<double>());
}

// Each tower by itself: an image gives the same selection whatever stands beside it in other towers, and a
// tower keeps min_kept pixels for each of its images.
TEST(Ohem, SelectsInsideEachTower) {
  const auto outputs = random_outputs(6), labels = random_labels(6);
  outputs[0].mul_(3);  // image 0 becomes harder than the others
  LossOf loss = ohem(1e-9, 4);
  const auto all = loss.chosen(outputs, labels, {1, 0, 2, 3});
  const auto counts = all.ne(Task::kVoid).flatten(1).sum(1);
  EXPECT_EQ(counts[0].item<int64_t>(), 4);
  EXPECT_EQ(counts.slice(0, 1, 3).sum().item<int64_t>(), 8);
  EXPECT_EQ(counts.slice(0, 3, 6).sum().item<int64_t>(), 12);
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 3}, {3, 6}}) {
    const auto alone = loss.chosen(outputs.slice(0, begin, end), labels.slice(0, begin, end), {end - begin});
    EXPECT_TRUE(alone.equal(all.slice(0, begin, end)));
  }
  EXPECT_FALSE(loss.chosen(outputs, labels, {6}).equal(all));
}

TEST(Ohem, IsTheMeanOverTheLabelsThatItChooses) {
  const auto outputs = random_outputs(4), labels = random_labels(4);
  for (const LossMean mean : {LossMean::batch, LossMean::tower}) {
    LossOf hard({{"name", "ohem"}, {"threshold", 0.3}, {"min_kept", 2}}, mean);
    LossOf all({{"name", "cross_entropy"}}, mean);
    const double loss = hard(outputs, labels, {3, 1}).item<double>();
    EXPECT_EQ(loss, all(outputs, hard.chosen(outputs, labels, {3, 1}), {3, 1}).item<double>());
    EXPECT_GT(loss, all(outputs, labels, {3, 1}).item<double>());
  }
}

TEST(Ohem, LeavesTheBatchAlone) {
  const auto outputs = random_outputs(2).requires_grad_();
  const auto labels = random_labels(2);
  const auto labels_before = labels.clone(), outputs_before = outputs.detach().clone();
  ohem(0.3, 2)(outputs, labels, {1, 1});
  EXPECT_TRUE(labels.equal(labels_before));
  EXPECT_TRUE(outputs.equal(outputs_before));
}

TEST(Ohem, OutputsThatAreNotNumbersStayInTheLoss) {  // so that the loop sees the run diverge
  Examples batch = with_probabilities({0.9, 0.1, 0.8});
  batch.images[0][0][0][1] = std::nan("");
  EXPECT_TRUE(std::isnan(ohem(0.05, 2)(batch.images, batch.labels, {1}).item<double>()));
}

// The exchange of the counts goes on during the forward pass where it can.
TEST(Losses, CrossEntropyStartsItsExchangeBeforeTheOutputs) {
  const auto world = join_world({}, at::kCPU);
  Batch batch;
  batch.labels = random_labels(2);
  batch.towers = Towers({1, 1}, 1, 0);
  const auto exchanged = [&] { return world->ledger().of(Purpose::loss).collectives; };
  const auto begin = [&](const Json& options, bool may_have_void) {
    world->ledger().clear();
    const auto loss = Registered<Loss>::create(options, {.may_have_void = may_have_void,
                                                         .classes = 3,
                                                         .communicator = world->gradients(),
                                                         .weights = at::TensorOptions(at::kDouble)});
    const auto loss_of = loss->begin(batch);
    const int64_t before = exchanged();
    const double of_logits = loss_of(random_outputs(2), batch).item<double>();
    const int64_t after = exchanged();
    EXPECT_EQ(loss_of(random_outputs(2), batch).item<double>(), of_logits) << "as auxiliary outputs";
    return std::tuple(before, after);
  };
  using Exchanges = std::tuple<int64_t, int64_t>;  // before the outputs, and after the first of them
  EXPECT_EQ(begin({{"name", "cross_entropy"}}, true), Exchanges(1, 1));
  EXPECT_EQ(begin({{"name", "cross_entropy"}}, false), Exchanges(0, 0));
  EXPECT_EQ(begin({{"name", "cross_entropy"}, {"class_weights", {1, 2, 3}}}, false), Exchanges(1, 1));
  EXPECT_EQ(begin({{"name", "ohem"}, {"threshold", 0.5}, {"min_kept", 1}}, false), Exchanges(0, 1));
}

TEST(LossReference, NamesEveryOption) {
  const auto readme = std::filesystem::path(__FILE__).parent_path() / "../../harness/tasks/README.md";
  std::stringstream text;
  text << std::ifstream(readme).rdbuf();
  for (const auto& [loss, about] : registered("loss")) {
    for (const Parameter& option : about.parameters()) {
      EXPECT_NE(text.str().find("| `" + loss + "` | `" + option.name + "` |"), std::string::npos)
          << loss << ": " << option.name;
    }
  }
}

}  // namespace
}  // namespace bnlab
