// The task `nuclei` on the images that come with the program: their numbers, splits and kinds.
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <algorithm>
#include <map>
#include <set>

#include "harness/support/error.hpp"
#include "harness/tasks/held_out.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::nuclei_test {
namespace {

std::unique_ptr<Task> nuclei(const Json& changes = Json::object()) {
  return test::make_task("nuclei", changes, {});
}

std::vector<std::string> names(const std::vector<LabelledFile>& files) {
  std::vector<std::string> all;
  for (const LabelledFile& file : files) all.push_back(file.name);
  return all;
}

const LabelledImages& training(const Task& task) {
  return dynamic_cast<const PhotographTask&>(task).training_photographs();
}

std::map<std::string, int> kinds(const Task& task) {
  std::map<std::string, int> count;
  for (const LabelledFile& file : training(task).files()) ++count[file.group];
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
  for (const std::string& name : names(training(*kept).files())) trained.insert(prefix_of(name));
  int held_out_tiles = 0;
  for (const std::string& name : names(training(*whole).files()))
    held_out_tiles += trained.contains(prefix_of(name)) ? 0 : 1;
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

TEST(Nuclei, ValidationShowsTrainingTilesAndKeepsThoseOfAnImageTogether) {
  const auto task = nuclei({{"train", 90}});
  const std::vector<LabelledFile>& files = training(*task).files();
  const std::vector<std::string> named = task->sample_names();
  const std::set<size_t> held = held_out(named, 0.2);
  std::set<std::string> there, here;
  std::vector<int64_t> samples;
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(named[i], prefix_of(files[i].name));
    (held.contains(i) ? here : there).insert(named[i]);
    if (held.contains(i)) samples.push_back(static_cast<int64_t>(i));
  }
  EXPECT_GE(samples.size(), 18u);
  for (const std::string& image : here) EXPECT_FALSE(there.contains(image)) << image;
  const auto validation = task->validation(samples);
  ASSERT_EQ(validation->test_samples(), std::ssize(samples));
  for (const int64_t place : {int64_t{0}, std::ssize(samples) - 1}) {
    const auto tile = training(*task).photograph(samples[static_cast<size_t>(place)]);
    const at::Tensor labels = at::tensor(at::ArrayRef<int16_t>(tile->labels)).view({128, 128});
    EXPECT_TRUE(at::equal(validation->test(place, 1).labels[0], labels.to(at::kLong)));
  }
  EXPECT_EQ(nuclei({{"train", 90}, {"test_size", {64, 64}}})->validation(samples)->test(0, 1).labels.sizes(),
            (std::vector<int64_t>{1, 64, 64}));
}

}  // namespace
}  // namespace bnlab::nuclei_test

#endif
