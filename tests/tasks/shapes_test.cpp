#include <gtest/gtest.h>

#include "tests/tasks/make_task.hpp"

namespace bnlab::shapes_test {
namespace {

std::unique_ptr<Task> shapes(uint64_t seed, const Json& changes = {}) {
  Json options = {{"size", {24, 32}}, {"train", 40}, {"test", 20}};
  options.update(changes.is_null() ? Json::object() : changes);
  return test::make_task("shapes", options, {seed, ""});
}

std::vector<Draw> all(const Task& task, int64_t epoch) {
  std::vector<Draw> draws;
  for (int64_t i = 0; i < task.training_samples(); ++i) draws.push_back({i, epoch});
  return draws;
}

TEST(Shapes, HasTheDeclaredSizes) {
  const auto task = shapes(0);
  EXPECT_EQ(task->classes(), 5);
  EXPECT_EQ(task->headline(), "mean_iou");
  EXPECT_FALSE(task->may_have_void());
  const Examples batch = task->training({{3, 0}, {39, 0}});
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{2, 3, 24, 32}));
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.labels.sizes(), (std::vector<int64_t>{2, 24, 32}));
  EXPECT_EQ(batch.labels.scalar_type(), at::kLong);
  EXPECT_EQ(task->test(5, 15).images.size(0), 15);
}

TEST(Shapes, DataIsAFunctionOfTheSeed) {
  const auto one = shapes(1), same = shapes(1), other = shapes(2);
  EXPECT_TRUE(one->test(0, 20).images.equal(same->test(0, 20).images));
  EXPECT_TRUE(one->test(0, 20).labels.equal(same->test(0, 20).labels));
  EXPECT_TRUE(one->training(all(*one, 3)).images.equal(same->training(all(*same, 3)).images));
  EXPECT_FALSE(one->test(0, 20).images.equal(other->test(0, 20).images));
}

TEST(Shapes, AnImageDoesNotDependOnHowManyThereAre) {
  const auto few = shapes(1, {{"test", 5}}), many = shapes(1, {{"train", 7}});
  EXPECT_TRUE(few->test(0, 5).images.equal(many->test(0, 5).images));
}

TEST(Shapes, TrainingAndTestImagesDiffer) {
  const auto task = shapes(1);
  EXPECT_FALSE(task->training({{0, 0}}).labels.equal(task->test(0, 1).labels));
}

TEST(Shapes, ShowsEveryClassAndNothingElse) {
  const auto labels = shapes(0)->test(0, 20).labels;
  const auto counts = at::bincount(labels.flatten());
  ASSERT_EQ(counts.size(0), 5);
  EXPECT_TRUE(counts.gt(0).all().item<bool>()) << counts;
}

TEST(Shapes, ImagesAreRoughlyStandardised) {
  const auto images = shapes(0, {{"nuisance", 0}, {"test", 200}})->test(0, 200).images;
  EXPECT_NEAR(images.mean().item<double>(), 0, 0.15);
  EXPECT_NEAR(images.std().item<double>(), 1, 0.2);
}

// A nuisance is one gain per image and one offset per channel over the same scenes, nothing else.
TEST(Shapes, NuisanceIsAnAffineMapOfEachChannel) {
  const auto plain = shapes(4, {{"nuisance", 0}})->test(0, 20),
             strong = shapes(4, {{"nuisance", 0.5}})->test(0, 20);
  EXPECT_TRUE(plain.labels.equal(strong.labels));
  const auto from = plain.images.flatten(2).to(at::kDouble), to = strong.images.flatten(2).to(at::kDouble);
  const auto gain = to.std(-1) / from.std(-1);  // [images, channels]
  EXPECT_NEAR((gain - gain.mean(1, true)).abs().max().item<double>(), 0, 1e-5);
  const auto offset = to.mean(-1) - gain * from.mean(-1);
  const auto rebuilt = gain.unsqueeze(-1) * from + offset.unsqueeze(-1);
  EXPECT_NEAR((rebuilt - to).abs().max().item<double>(), 0, 1e-5);
  EXPECT_NEAR(gain.log().std().item<double>(), 0.5, 0.25);
  EXPECT_NEAR(offset.std().item<double>(), 0.5, 0.2);
}

TEST(Shapes, TrainingFlipsImageAndLabelsTogether) {
  const auto task = shapes(0);
  const Examples first = task->training(all(*task, 0)), later = task->training(all(*task, 1));
  int64_t kept = 0, flipped = 0;
  for (int64_t i = 0; i < 40; ++i) {
    if (later.images[i].equal(first.images[i])) {
      EXPECT_TRUE(later.labels[i].equal(first.labels[i]));
      ++kept;
    } else {
      EXPECT_TRUE(later.images[i].equal(first.images[i].flip({2})));
      EXPECT_TRUE(later.labels[i].equal(first.labels[i].flip({1})));
      ++flipped;
    }
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(flipped, 5);
}

TEST(Shapes, AugmentationDependsOnSampleAndEpochAlone) {
  const auto task = shapes(0);
  const Examples whole = task->training(all(*task, 2));
  const Examples part = task->training({{7, 5}, {3, 2}});
  EXPECT_TRUE(part.images[1].equal(whole.images[3]));
  EXPECT_TRUE(part.labels[1].equal(whole.labels[3]));
}

TEST(Shapes, OhemIsAChoiceOfLoss) {
  const auto task = shapes(0, {{"loss", {{"name", "ohem"}, {"min_kept", 10}}}});
  EXPECT_EQ(task->loss(), Json({{"name", "ohem"}, {"threshold", 0.7}, {"min_kept", 10}}));
  EXPECT_EQ(shapes(0)->loss().at("name"), "cross_entropy");
}

// The training images, some of them flipped.
Examples training_set(const Task& task) {
  return task.training(all(task, 0));
}

TEST(Shapes, SortsByTheShapeThatCoversMostPixels) {
  const auto task = shapes(2);
  const auto values = task->sort_values("class");
  ASSERT_EQ(values.size(), 40u);
  const auto labels = training_set(*task).labels;  // flipped or not: counts stay
  for (int64_t i = 0; i < 40; ++i) {
    const auto counts = at::bincount(labels[i].flatten(), {}, 5).slice(0, 1);
    EXPECT_EQ(counts[static_cast<int64_t>(values[static_cast<size_t>(i)]) - 1].item<int64_t>(),
              counts.max().item<int64_t>())
        << "image " << i;
  }
  EXPECT_EQ(values, shapes(2)->sort_values("class"));
}

TEST(Shapes, SortsByBrightnessNuisanceIncluded) {
  const auto task = shapes(2, {{"nuisance", 1.0}});
  const auto values = task->sort_values("brightness");
  const auto means = training_set(*task).images.to(at::kDouble).flatten(1).mean(1);
  ASSERT_EQ(values.size(), 40u);
  for (int64_t i = 0; i < 40; ++i) EXPECT_NEAR(values[static_cast<size_t>(i)], means[i].item<double>(), 1e-9);
  EXPECT_NE(values, shapes(2, {{"nuisance", 0.5}})->sort_values("brightness"));
}

}  // namespace
}  // namespace bnlab::shapes_test
