// The task `nuclei` on the images that come with the program: their numbers, splits and kinds.
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <algorithm>
#include <map>
#include <set>

#include "harness/error.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::nuclei_test {
namespace {

std::unique_ptr<Task> nuclei(const Json& changes = Json::object()) {
  return test::make_task("nuclei", changes, {});
}

std::vector<std::string> names(const std::vector<LabelledFile>& files) {
  std::vector<std::string> all;
  for (const LabelledFile& file : files) {
    all.push_back(file.name);
  }
  return all;
}

const LabelledImages& training(const Task& task) {
  return dynamic_cast<const PhotographTask&>(task).training_photographs();
}

std::map<std::string, int> kinds(const Task& task) {
  std::map<std::string, int> count;
  for (const LabelledFile& file : training(task).files()) {
    ++count[file.group];
  }
  return count;
}

TEST(Nuclei, AreWhatTheirPageSays) {
  const auto task = nuclei();
  EXPECT_EQ(task->classes(), 3);
  EXPECT_EQ(task->training_samples(), 809);
  EXPECT_EQ(task->test_samples(), 233);
  EXPECT_EQ(task->test(0, 2).images.sizes(), (std::vector<int64_t>{2, 3, 128, 128}));
  const std::vector<int64_t> pixels = class_pixels(training(*task).summaries());
  const double all = 809 * 128 * 128;
  EXPECT_NEAR(static_cast<double>(pixels[0]) / all, 0.85, 0.02);
  EXPECT_NEAR(static_cast<double>(pixels[1]) / all, 0.09, 0.02);
  EXPECT_NEAR(static_cast<double>(pixels[2]) / all, 0.07, 0.02);
  EXPECT_EQ(kinds(*task).size(), 3U);
}

TEST(Nuclei, KindsCanBeChosenSortedAndAreScoredApart) {
  const auto bright =
      nuclei({{"train_kinds", {"brightfield", "histology"}}, {"test_kinds", {"brightfield"}}});
  const auto count = kinds(*bright);
  EXPECT_EQ(count.size(), 2U);
  const std::vector<double> kind = bright->sort_values("kind");  // in the order of their names
  EXPECT_EQ(std::ranges::count(kind, 0.0), count.at("brightfield"));
  EXPECT_EQ(std::ranges::count(kind, 1.0), count.at("histology"));
  EXPECT_GT(bright->test_samples(), 0);
  EXPECT_LT(bright->test_samples(), 20);

  try {
    nuclei({{"test_kinds", {"histologie"}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "task nuclei: there are no tiles of kind \"histologie\"; did you mean \"histology\"?");
  }
  const auto few = nuclei({{"train", 16}, {"test", 40}});
  const Examples test = few->test(0, 40);
  const auto perfect = at::one_hot(test.labels, 3).permute({0, 3, 1, 2}).to(at::kFloat);
  const Json metrics = few->metrics(few->measure(perfect, test.labels, 0));
  EXPECT_EQ(metrics.at("groups").at("fluorescence").at("mean_iou"), 1.0);
  EXPECT_TRUE(metrics.at("groups").contains("histology"));
}

// The images to tune on are a part of the training images, and no image lends tiles to both sides.
TEST(Nuclei, WhatIsHeldOutIsNotTrainedOn) {
  const auto task = nuclei({{"test_split", "held_out"}});
  EXPECT_EQ(task->training_samples() + task->test_samples(), 809);
  EXPECT_NEAR(static_cast<double>(task->test_samples()), 0.2 * 809, 40);
  const auto whole = nuclei(), kept = nuclei({{"test_split", "held_out"}});
  std::set<std::string> trained;
  for (const std::string& name : names(training(*kept).files())) {
    trained.insert(prefix_of(name));
  }
  int held_out_tiles = 0;
  for (const std::string& name : names(training(*whole).files())) {
    held_out_tiles += trained.contains(prefix_of(name)) ? 0 : 1;
  }
  EXPECT_EQ(held_out_tiles, task->test_samples());
}

TEST(Nuclei, ANumberOfTilesIsSpreadOverTheList) {
  const auto all = nuclei(), few = nuclei({{"train", 100}, {"test", 3}});
  const auto every = names(training(*all).files()), some = names(training(*few).files());
  ASSERT_EQ(some.size(), 100U);
  EXPECT_EQ(some.front(), every.front());
  EXPECT_EQ(some[50], every[50 * 809 / 100]);
  EXPECT_EQ(few->test_samples(), 3);
  try {
    nuclei({{"train", 810}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "task nuclei: train: expected at most 809, as many tiles as there are, got 810");
  }
}

}  // namespace
}  // namespace bnlab::nuclei_test

#endif
