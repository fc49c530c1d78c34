// Test images of several sizes: what the network answers for one of them does not depend on the sizes of the
// others, and the metrics count every one once.
#include "harness/training/data.hpp"

#include "harness/communicator/thread_ranks.hpp"
#include "harness/training/evaluator.hpp"
#include "tests/training/training_runs.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "harness/support/random.hpp"
#include "tests/tasks/write_images.hpp"

namespace bnlab::test_sizes_test {
namespace {

using test::Picture;
using test::TemporaryFolder;

class TestSizes : public ::testing::Test {
 protected:
  // A picture of noise that its name and size decide, and labels in three classes.
  static void write(const TemporaryFolder& folder, const std::string& name, int height, int width) {
    Stream stream(7, "picture", std::hash<std::string>()(name));
    Picture image{height, width, {}}, labels{height, width, {}};
    for (int i = 0; i < height * width; ++i) {
      labels.values.push_back(static_cast<uint8_t>(stream.below(3)));
      image.values.insert(image.values.end(), 3,
                          static_cast<uint8_t>(60 * labels.values.back() + stream.below(60)));
    }
    const auto split = name.starts_with("train") ? std::string("train/") : std::string("test/");
    test::write_png(folder.path("mine/" + split + "images/" + name + ".png"), image, PNG_COLOR_TYPE_RGB);
    test::write_png(folder.path("mine/" + split + "labels/" + name + ".png"), labels, PNG_COLOR_TYPE_GRAY);
  }
  void SetUp() override {
    for (const TemporaryFolder* folder : {&alone_, &among_}) {
      for (const char* name : {"train_a", "train_b", "train_c", "train_d"}) write(*folder, name, 20, 20);
      write(*folder, "small", 13, 15);
    }
    for (const char* name : {"larger_a", "larger_b", "larger_c"}) write(among_, name, 16, 15);
    write(among_, "largest", 24, 32);
  }

  static RunSpec spec(const Json& strategy) {
    return TrainingRuns::spec(
        {{"task", {{"name", "folder"}, {"root", "mine"}, {"classes", 3}, {"crop", {16, 16}}}},
         {"model", {{"name", "unet"}, {"base", 4}, {"levels", 3}}},
         {"strategy", strategy},
         {"populations", {"batch"}},
         {"batch_per_tower", 1}});
  }
  // What the untrained network answers for the first test image, which is the smallest.
  static at::Tensor answer(const TemporaryFolder& folder, const Json& strategy, Population::Kind kind) {
    at::Tensor logits;
    const RunSpec run = spec(strategy);
    on_thread_ranks(1, at::kCPU, [&](World& world) {
      const at::NoGradGuard no_grad;
      Data data(run, folder.path(), world);
      TrainedModel model(run, data, world);
      Evaluator evaluator(run, data, model, world, nullptr);
      logits = evaluator.predictions(data.test(0), 0, {.kind = kind})[0];
    });
    return logits;
  }

  TemporaryFolder alone_, among_;
};

TEST_F(TestSizes, AnImageIsAnsweredAloneAsAmongLargerOnes) {
  const auto expect_same = [&](const Json& strategy, Population::Kind kind) {
    const at::Tensor alone = answer(alone_, strategy, kind), among = answer(among_, strategy, kind);
    EXPECT_EQ(alone.sizes(), (std::vector<int64_t>{3, 16, 16})) << "multiples of 4, as three levels need";
    EXPECT_TRUE(alone.equal(among)) << strategy;
  };
  expect_same({{"name", "group_norm"}, {"groups", 2}}, Population::Kind::saved);
  for (const char* strategy : {"per_tower", "sync"})
    expect_same({{"name", strategy}}, Population::Kind::batch);
}

TEST_F(TestSizes, BatchesHoldOneSizeAndEveryImageIsInOne) {
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    const RunSpec run = spec("sync");
    const Data data(run, among_.path(), world);
    ASSERT_EQ(data.test_batches(), 3);
    int64_t samples = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const Batch batch = data.test(i);
      EXPECT_EQ(data.first_sample(EvaluationSplit::test, batch), samples + batch.towers.local_begin());
      EXPECT_EQ(data.test_batch_of(samples), i);
      samples += batch.towers.total_samples();
      EXPECT_EQ(data.test_batch_of(samples - 1), i);
      EXPECT_EQ(batch.images.size(0), batch.towers.local_samples());
      EXPECT_EQ(batch.images.size(3), i == 2 ? 32 : 16) << "also where this rank has none of them";
    }
    EXPECT_EQ(samples, 5);
  });
}

TEST_F(TestSizes, TheMetricsDoNotDependOnThePlacement) {
  TrainingRuns runs(among_.path());
  const RunSpec run = spec("sync");
  const Json one = runs.run(run, 1).result.at("final");
  EXPECT_EQ(one, runs.run(run, 2).result.at("final"));
}

}  // namespace
}  // namespace bnlab::test_sizes_test

#endif
