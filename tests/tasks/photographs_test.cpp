// What all tasks on files share, on the task `folder`; and the counts of real CamVid, where it is there.
#include "harness/tasks/photographs.hpp"

#include "tests/tasks/file_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <cstdlib>
#include <thread>

namespace bnlab::photographs_test {
namespace {

class PhotographTaskTest : public test::FileTask {
 protected:
  PhotographTaskTest()
      : FileTask("folder", "mydata/",
                 {{"root", "mydata"}, {"classes", {"sky", "road", "car"}}, {"crop", {8, 10}}}) {}

  void SetUp() override {
    for (const std::string split : {"train", "test"}) {
      for (int i = 0; i < 4; ++i) {
        const std::string name = std::to_string(i);
        write_image(split + "/images/" + name + ".png", 3 + i);
        std::vector<uint8_t> ids(static_cast<size_t>(3 + i));
        ids[1] = 1;
        ids[2] = static_cast<uint8_t>(i < 2 ? 2 : 255);
        write_labels(split + "/labels/" + name + ".png", ids);
      }
    }
  }
};

const std::vector<Draw> kDraws = {{0, 0}, {3, 0}, {1, 5}, {0, 1}};

TEST_F(PhotographTaskTest, ReadingAgainGivesTheSameExamples) {
  const auto kept = task(), read = task({{"cache_mib", 0}});
  EXPECT_TRUE(kept->training(kDraws).images.equal(read->training(kDraws).images));
  EXPECT_TRUE(kept->training(kDraws).labels.equal(read->training(kDraws).labels));
  for (int64_t sample = 0; sample < 4; ++sample) {
    EXPECT_TRUE(kept->test(sample, 1).images.equal(read->test(sample, 1).images));
    EXPECT_TRUE(kept->test(sample, 1).labels.equal(read->test(sample, 1).labels));
  }
  EXPECT_EQ(kept->sort_values("brightness"), read->sort_values("brightness"));
  // A file that is gone is missed by the one that reads it again.
  std::filesystem::remove(file("train/images/0.png"));
  EXPECT_NO_THROW(kept->training(kDraws));
  EXPECT_THROW(read->training(kDraws), Error);
}

TEST_F(PhotographTaskTest, ThreadsAtOnceGetTheSameExamples) {
  const auto shared = task({{"augment", "mmseg"}, {"cache_mib", 0}});
  const Examples alone = shared->training(kDraws);
  std::array<Examples, 4> made;
  std::vector<std::thread> threads;
  for (Examples& examples : made) threads.emplace_back([&] { examples = shared->training(kDraws); });
  for (std::thread& thread : threads) thread.join();
  for (const Examples& examples : made) {
    EXPECT_TRUE(examples.images.equal(alone.images));
    EXPECT_TRUE(examples.labels.equal(alone.labels));
  }
}

TEST_F(PhotographTaskTest, AugmentationIsAChoice) {
  for (const Json& augment : {Json("semseg"), Json("mmseg"), Json{{"rotation", 90}}}) {
    const auto one = task({{"augment", augment}}), same = task({{"augment", augment}}), plain = task();
    std::vector<Draw> draws;
    for (int64_t epoch = 0; epoch < 20; ++epoch) draws.push_back({0, epoch});
    EXPECT_TRUE(one->training(draws).images.equal(same->training(draws).images));
    EXPECT_FALSE(one->training(draws).images.equal(plain->training(draws).images)) << augment;
    EXPECT_TRUE(one->test(0, 1).images.equal(plain->test(0, 1).images)) << "the test is not augmented";
  }
}

TEST_F(PhotographTaskTest, ImageNetsMomentsAreAChoice) {
  const Examples test = task({{"normalisation", "imagenet"}})->test(0, 1);  // the first pixel is 90
  const auto expected =
      at::tensor({(90 - 123.675) / 58.395, (90 - 116.28) / 57.12, (90 - 103.53) / 57.375}, at::kFloat);
  EXPECT_TRUE(test.images[0].select(1, 0).select(1, 0).allclose(expected, 0, 1e-5));
}

// Of the four training images (stripes 0 1 2, 0 1 2 0, 0 1 void 0 0, 0 1 void 0 0 0) the first class has 10
// of 18 stripes, the second 4 of 18, the third 2 of the 7 of the images that show it: the median is 2/7.
TEST_F(PhotographTaskTest, ClassWeightsAreCountedOnTheTrainingLabels) {
  const auto weights = task({{"class_weights", "median_frequency"}})->loss().at("class_weights");
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NEAR(weights[0].get<double>(), 2.0 / 7 / (10.0 / 18), 1e-12);
  EXPECT_NEAR(weights[1].get<double>(), 2.0 / 7 / (4.0 / 18), 1e-12);
  EXPECT_NEAR(weights[2].get<double>(), 1, 1e-12);
  EXPECT_TRUE(task()->loss().at("class_weights").is_null());
  EXPECT_NAMES(error({{"class_weights", "median_frequency"}, {"loss", "ohem"}}, Error::Kind::refused),
               "takes none");
  const Json both = {{"class_weights", "median_frequency"},
                     {"loss", {{"name", "cross_entropy"}, {"class_weights", {1, 2, 3}}}}};
  EXPECT_NAMES(error(both, Error::Kind::refused), "of its own");
}

// Pixels of ids 0 to 11 of the published label files.
TEST(CamVidFiles, HaveThePublishedCounts) {
  const char* data = std::getenv("BNLAB_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "camvid" / "train"))
    GTEST_SKIP() << "BNLAB_DATA names no folder with camvid/train";
  const Json options = {{"scale", 1.0}, {"test_split", "test"}, {"cache_mib", 0}};
  const auto camvid = test::make_task("camvid", options, {0, data});
  const auto& pixels = dynamic_cast<const PhotographTask&>(*camvid);
  EXPECT_EQ(class_pixels(pixels.training_photographs().summaries()),
            (std::vector<int64_t>{10682767, 14750079, 623349, 20076880, 2845085, 6166762, 743859, 714595,
                                  3719877, 405385, 184967}));
  at::Tensor test_pixels = at::zeros({11}, at::kLong);
  for (int64_t i = 0; i < camvid->test_samples(); ++i) {
    const at::Tensor labels = camvid->test(i, 1).labels;
    test_pixels += at::bincount(labels.masked_select(labels != Task::kVoid), {}, 11);
  }
  EXPECT_TRUE(test_pixels.equal(at::tensor(
      {6870982, 9906732, 473895, 10390661, 3731857, 4530895, 406612, 476807, 1599124, 255232, 76220},
      at::kLong)));
  const std::vector<double> published = {.279, .202, 4.787, .149, 1, .422, 3.847, 1.974, .789, 6.375, 8.859};
  const std::vector<double> weights = median_frequency_weights(pixels.training_photographs().summaries());
  for (size_t c = 0; c < published.size(); ++c) EXPECT_NEAR(weights[c], published[c], 6e-4) << "class " << c;
  EXPECT_EQ(camvid->training_samples(), 367);
  EXPECT_EQ(camvid->test_samples(), 233);
}

}  // namespace
}  // namespace bnlab::photographs_test

#endif
