#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::frames_test {
namespace {

using test::Picture;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Frame n of a clip is grey, 10 n everywhere but for the last two columns, which are white.
class FramesTest : public ::testing::Test {
 protected:
  void write_clip(const std::string& clip, int frames, int height = 16, int width = 20) const {
    for (int n = 1; n <= frames; ++n) {
      Picture picture{height, width, {}};
      for (int p = 0; p < height * width; ++p) {
        picture.values.insert(picture.values.end(), 3,
                              static_cast<uint8_t>(p % width >= width - 2 ? 255 : 10 * n));
      }
      const std::string number = (n < 10 ? "0000" : "000") + std::to_string(n);
      test::write_png(folder_.path("clips/" + clip + "/img_" + number + ".jpg"), picture, PNG_COLOR_TYPE_RGB);
    }
  }
  void SetUp() override {
    write_clip("run/v 1", 12);
    write_clip("run/v2", 3, 32, 40);
    write_clip("jump/v1", 8);
    test::write_bytes(folder_.path("clips/train.txt"), "run/v 1 12 1\r\n\njump/v1 8 0\n");
    test::write_bytes(folder_.path("clips/test.txt"), "run/v2 3 1\n");
  }
  std::unique_ptr<Task> task(const Json& changes = Json::object()) const {
    Json options = {{"root", "clips"}, {"frames", 4}, {"size", {16, 16}}, {"short_side", 16}};
    options.update(changes);
    return test::make_task("frames", options, {7, folder_.path()});
  }
  std::string error(const Json& changes = Json::object()) const {
    try {
      task(changes);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

// The numbers of the frames, read off a grey column.
std::vector<int> numbers(const at::Tensor& frames) {
  std::vector<int> all;
  for (int64_t i = 0; i < frames.size(0); ++i)
    all.push_back(static_cast<int>(std::lround((frames[i][0][8][8].item<float>() * 58.395 + 123.675) / 10)));
  return all;
}

TEST_F(FramesTest, TakesTheMiddlesOfEqualPartsOfEachClip) {
  const auto task = this->task();
  EXPECT_EQ(task->classes(), 2);
  EXPECT_EQ(task->rows_per_sample(), 4);
  EXPECT_EQ(task->training_samples(), 2);
  const Examples batch = task->training({{1, 0}, {0, 0}});
  EXPECT_TRUE(batch.labels.equal(at::tensor({0, 1}, at::kLong)));
  ASSERT_EQ(batch.images.sizes(), (std::vector<int64_t>{8, 3, 16, 16}));
  EXPECT_EQ(numbers(batch.images), (std::vector<int>{2, 4, 6, 8, 2, 5, 8, 11}));
  const Examples test = task->test(0, 1);
  EXPECT_EQ(numbers(test.images), (std::vector<int>{1, 2, 2, 3}));  // of 3 frames
  EXPECT_EQ(test.labels.item<int64_t>(), 1);
  EXPECT_EQ(task->sort_values("class"), (std::vector<double>{1, 0}));
}

TEST_F(FramesTest, AllFramesOfAClipAreCutAndFlippedAlike) {
  const auto task = this->task();
  std::set<int64_t> whites;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const at::Tensor white = task->training({{0, epoch}}).images.select(1, 0).select(1, 0).gt(2);  // [4, 16]
    EXPECT_TRUE(white.eq(white[0]).all().item<bool>());
    whites.insert(white[0].sum().item<int64_t>() * (white[0][0].item<bool>() ? -1 : 1));
  }
  EXPECT_EQ(whites, (std::set<int64_t>{-2, -1, 0, 1, 2}));
}

TEST_F(FramesTest, NamesOfFramesFollowThePattern) {
  for (int n = 0; n < 4; ++n) {
    const Picture picture{16, 16, std::vector<uint8_t>(16 * 16 * 3, static_cast<uint8_t>(10 * n))};
    test::write_png(folder_.path("clips/odd/f" + std::to_string(n) + "x.png"), picture, PNG_COLOR_TYPE_RGB);
  }
  test::write_bytes(folder_.path("clips/odd.txt"), "odd 4 0\n");
  const auto task = this->task(
      {{"train_list", "odd.txt"}, {"test_list", "odd.txt"}, {"pattern", "f%01dx.png"}, {"first", 0}});
  EXPECT_EQ(numbers(task->test(0, 1).images), (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(FramesTest, NamesWhatIsWrong) {
  const std::string list = folder_.path("clips/bad.txt");
  const auto with = [&](const std::string& lines) {
    test::write_bytes(list, lines);
    return error({{"train_list", "bad.txt"}});
  };
  EXPECT_EQ(with("\n"), list + ": expected a line `path frames label` for each clip, got none");
  EXPECT_EQ(with("jump/v1 8 0\njump/v1 8\n"),
            list +
                ", line 2: expected `path frames label` with at least one frame, "
                "got 'jump/v1 8'");
  EXPECT_PRED2(has, with("jump/v1 0 0\n"), "with at least one frame");
  EXPECT_EQ(with("../clips/jump/v1 8 0\n"),
            list + ", line 1: expected a path below " + folder_.path("clips") + ", got ../clips/jump/v1");
  EXPECT_EQ(with("jump/v1 20 0\n"), folder_.path("clips/jump/v1/img_00013.jpg") +
                                        ": missing, a frame of the clip in " + list + ", line 1");
  EXPECT_EQ(with("jump/v1 8 0\n"), "label 1 of the test list: the training list has labels 0 to 0");
  EXPECT_PRED2(has, error({{"train_list", "none.txt"}}), "none.txt: does not exist");
  EXPECT_PRED2(has, error({{"pattern", "img.jpg"}}), "pattern: expected a file name with one number");
  EXPECT_PRED2(has, error({{"pattern", "../%05d.jpg"}}), "pattern: expected a file name with one number");
}

TEST_F(FramesTest, ValidationShowsTrainingClipsAsTestClipsAreShown) {
  const auto tested = task({{"test_list", "train.txt"}});
  const auto validation = task()->validation({1});
  EXPECT_EQ(validation->test_samples(), 1);
  const Examples shown = validation->test(0, 1), expected = tested->test(1, 1);
  EXPECT_TRUE(at::equal(shown.images, expected.images));
  EXPECT_TRUE(at::equal(shown.labels, expected.labels));
}

TEST_F(FramesTest, ClipsOfOneSceneHaveOneName) {
  for (const char* clip : {"v_Run_g01_c01", "v_Run_g01_c02", "v_Run_g02_c01"}) write_clip(clip, 4);
  test::write_bytes(folder_.path("clips/scenes.txt"),
                    "v_Run_g01_c01 4 0\nv_Run_g01_c02 4 0\nv_Run_g02_c01 4 1\n");
  EXPECT_EQ(task({{"train_list", "scenes.txt"}})->sample_names(),
            (std::vector<std::string>{"v_Run_g01", "v_Run_g01", "v_Run_g02"}));
}

TEST_F(FramesTest, OnlyANumberAfterCTellsClipsOfAScene) {
  for (const char* clip : {"run_car_01", "run_car_02", "walk_c"}) write_clip(clip, 4);
  test::write_bytes(folder_.path("clips/cars.txt"), "run_car_01 4 0\nrun_car_02 4 0\nwalk_c 4 1\n");
  EXPECT_EQ(task({{"train_list", "cars.txt"}})->sample_names(),
            (std::vector<std::string>{"run_car_01", "run_car_02", "walk_c"}));
}

}  // namespace
}  // namespace bnlab::frames_test

#endif
