// The batches of a run: what calibration draws, and how the test split is dealt.
#include "harness/training/data.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "harness/communicator/thread_ranks.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

RunSpec spec(const Json& keys = Json::object()) {
  Json all = {{"batch_per_tower", {2, 3, 1, 2}}};
  all.update(keys);
  return TrainingRuns::spec(all);
}

// The images of a batch over all ranks, one row each.
at::Tensor images(const RunSpec& spec, int ranks, const std::function<Batch(Data&)>& batch) {
  std::vector<at::Tensor> of_ranks(static_cast<size_t>(ranks));
  on_thread_ranks(ranks, at::kCPU, [&](World& world) {
    Data data(spec, "", world);
    of_ranks[static_cast<size_t>(world.rank())] = batch(data).images.flatten(1);
  });
  return at::cat(of_ranks);
}

at::Tensor calibration(const RunSpec& spec, int ranks, int64_t index) {
  return images(spec, ranks, [&](Data& data) { return data.calibration(index); });
}

TEST(Calibration, DependsOnSeedAndIndexAndNotOnThePlacement) {
  const at::Tensor whole = calibration(spec(), 1, 3);
  EXPECT_EQ(whole.size(0), 8);
  EXPECT_TRUE(calibration(spec(), 2, 3).equal(whole));
  EXPECT_TRUE(calibration(spec(), 1, 3).equal(whole));
  EXPECT_FALSE(calibration(spec(), 1, 4).equal(whole));
  EXPECT_FALSE(calibration(spec({{"seed", 4}}), 1, 3).equal(whole));
}

// With a training set of one batch both take all of it, in another order and not augmented alike.
TEST(Calibration, DrawsApartFromTraining) {
  const RunSpec one_batch =
      spec({{"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 8}, {"test", 11}}}});
  const at::Tensor drawn = calibration(one_batch, 1, 0);
  const at::Tensor trained = images(one_batch, 1, [](Data& data) { return data.training(0); });
  EXPECT_FALSE(drawn.equal(trained));
  const at::Tensor alike = drawn.unsqueeze(1).eq(trained.unsqueeze(0)).all(2).any(1);
  EXPECT_LT(alike.sum().item<int64_t>(), 8)
      << "the training step draws the same augmentation for every image";
}

TEST(Epochs, AreNoStepMoreForTheRoundingOfTheirNumber) {
  const auto steps = [](double epochs) {
    const RunSpec run =
        spec({{"epochs", epochs},
              {"steps", nullptr},
              {"batch_per_tower", {2, 2, 2, 1}},
              {"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 100}, {"test", 4}}}});
    int64_t found = 0;
    on_thread_ranks(1, at::kCPU, [&](World& world) { found = Data(run, "", world).steps(); });
    return found;
  };
  EXPECT_EQ(steps(0.07), 1);  // 0.07 * 100 is a little more than 7
  EXPECT_EQ(steps(0.071), 2);
  EXPECT_EQ(steps(1e-6), 1);
}

std::set<std::string> threads_of_process() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(entry.path().filename());
  return found;
}

// Times are taken of repeated steps: none of them may wait for a worker that starts again.
TEST(RepeatedSteps, HaveTheBatchesOfTheTrainingFromTheSameWorkersOnBothSidesOfTheSeam) {
  for (const int64_t workers : {0, 2}) {
    const RunSpec short_run = spec({{"data_workers", workers}, {"steps", 3}});
    on_thread_ranks(1, at::kCPU, [&](World& world) {
      Data data(short_run, "", world);
      std::vector<at::Tensor> trained;
      for (int64_t step = 0; step < 3; ++step) trained.push_back(data.training(step).images.clone());
      data.repeat();
      std::set<std::string> threads;
      for (int64_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(data.training(i % 3).images.equal(trained[static_cast<size_t>(i % 3)])) << i;
        if (i == 0) threads = threads_of_process();
      }
      EXPECT_EQ(threads_of_process(), threads) << workers << " workers";
    });
  }
}

TEST(TestSplit, IsDealtOnceAndTheLastBatchFillsTheTowersInOrder) {
  const RunSpec split = spec();  // 11 test images in batches of 8
  std::vector<std::vector<int64_t>> first(2), samples(2);
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    Data data(split, "", world);
    EXPECT_EQ(data.test_batches(), 2);
    for (int64_t i = 0; i < 2; ++i) {
      const Batch batch = data.test(i);
      first[static_cast<size_t>(world.rank())].push_back(data.first_sample(EvaluationSplit::test, batch));
      samples[static_cast<size_t>(world.rank())].push_back(batch.images.size(0));
    }
  });
  EXPECT_EQ(first, (std::vector<std::vector<int64_t>>{{0, 8}, {5, 11}}));
  EXPECT_EQ(samples, (std::vector<std::vector<int64_t>>{{5, 3}, {3, 0}}));
}

// A test batch takes no more memory than a pass of training.
TEST(TestSplit, OfATowerComesInBatchesOfAPass) {
  const RunSpec split = spec(
      {{"batch_per_tower", 2},
       {"accumulate", 2},
       {"shards", "sorted:brightness"},
       {"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 32}, {"test", 24}, {"nuisance", 1}}}});
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    const Data data(split, "", world);
    std::set<int64_t> seen;
    for (int64_t tower = 0; tower < 4; ++tower) {
      data.each_test_of(tower, [&](const Batch& batch, const std::vector<int64_t>& samples) {
        EXPECT_EQ(batch.images.size(0), std::ssize(samples));
        EXPECT_LE(std::ssize(samples), data.towers_of_pass().total_samples());
        seen.insert(samples.begin(), samples.end());
      });
    }
    EXPECT_EQ(seen.size(), 24u);
  });
}

TEST(TestSplit, ComesInItsOrderWhoeverMakesTheBatches) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    for (const int64_t workers : {0, 3}) {
      const RunSpec split = spec({{"data_workers", workers}});
      const Data data(split, "", world);
      int64_t index = 0;
      data.each(EvaluationSplit::test, [&](const Batch& batch) {
        EXPECT_EQ(batch.index, static_cast<uint64_t>(index));
        EXPECT_TRUE(at::equal(batch.images, data.test(index).images)) << index;
        ++index;
      });
      EXPECT_EQ(index, data.test_batches());
    }
  });
}

}  // namespace
}  // namespace bnlab
