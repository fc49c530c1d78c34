// The tasks cifar10 and cifar100 on files of the published sizes, which are empty but for their first images.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::cifar_test {
namespace {

namespace fs = std::filesystem;

constexpr int kPlane = 32 * 32;

// Red is 8 times the row, green 8 times the column, blue 7 everywhere.
std::string record(const std::string& label) {
  std::string bytes = label;
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < kPlane; ++p)
      bytes += static_cast<char>(c == 0 ? p / 32 * 8 : c == 1 ? p % 32 * 8 : 7);
  return bytes;
}

void write(const fs::path& file, const std::string& beginning, uintmax_t size) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << beginning;
  fs::resize_file(file, size);
}

void write_cifar10(const TemporaryFolder& folder) {
  for (const char* name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"})
    write(folder.path() / "cifar-10-batches-bin" / (std::string(name) + ".bin"), record("\x03"), 30730000);
  write(folder.path() / "cifar-10-batches-bin/test_batch.bin", record("\x09"), 30730000);
}

std::unique_ptr<Task> make(const TemporaryFolder& folder, const char* name,
                           const Json& changes = Json::object()) {
  return test::make_task(name, changes, {5, folder.path().string()});
}

std::string error(const TemporaryFolder& folder, const char* name) {
  try {
    make(folder, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data);
    return error.what();
  }
  return "no error";
}

// A value of a channel once normalised.
float normalised(double value, double mean, double deviation) {
  return static_cast<float>((value / 255 - mean) / deviation);
}

// Reading takes a second, so the tests share the files and the task.
class Cifar10 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    write_cifar10(*folder);
    task = make(*folder, "cifar10");
  }
  static void TearDownTestSuite() {
    task.reset();
    folder.reset();
  }

  static inline std::unique_ptr<TemporaryFolder> folder;
  static inline std::unique_ptr<Task> task;
};

TEST_F(Cifar10, ReadsLabelsAndPixelsInTheirOrder) {
  EXPECT_EQ(task->classes(), 10);
  EXPECT_EQ(task->training_samples(), 50000);
  EXPECT_EQ(task->test_samples(), 10000);
  const Examples test = task->test(0, 2);
  EXPECT_TRUE(test.labels.equal(at::tensor({9, 0}, at::kLong)));
  ASSERT_EQ(test.images.sizes(), (std::vector<int64_t>{2, 3, 32, 32}));
  const auto image = test.images[0];
  EXPECT_NEAR(image[0][5][9].item<float>(), normalised(40, 0.4914, 0.2470), 1e-5);
  EXPECT_NEAR(image[1][5][9].item<float>(), normalised(72, 0.4822, 0.2435), 1e-5);
  EXPECT_NEAR(image[2][5][9].item<float>(), normalised(7, 0.4465, 0.2616), 1e-5);
  const auto classes = task->sort_values("class");
  EXPECT_EQ(classes[0], 3);
  EXPECT_EQ(classes[40000], 3);  // the first of the fifth file
  EXPECT_EQ(classes[1], 0);
  EXPECT_NEAR(task->sort_values("brightness")[0], (2 * 124 + 7) / 3.0, 1e-9);
}

TEST_F(Cifar10, TheLastFifthOfTheTrainingIsHeldOutToTuneOn) {
  const auto held_out = make(*folder, "cifar10", {{"test_split", "held_out"}});
  EXPECT_EQ(held_out->training_samples(), 40000);
  EXPECT_EQ(held_out->test_samples(), 10000);
  EXPECT_TRUE(held_out->test(0, 2).labels.equal(at::tensor({3, 0}, at::kLong)));  // not the test's 9
  EXPECT_TRUE(
      held_out->test(0, 1).images[0].equal(task->test(0, 1).images[0]));  // records alike but for labels
  EXPECT_EQ(held_out->sort_values("class").size(), 40000u);
}

TEST_F(Cifar10, CropsOfThePaddedImageAreFlippedAndEachHasItsOwnDraws) {
  std::set<int> tops, flips;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Examples batch = task->training({{0, epoch}});
    EXPECT_EQ(batch.labels.item<int64_t>(), 3);
    const at::Tensor bytes = ((batch.images[0] * at::tensor({0.2470f, 0.2435f, 0.2616f}).view({3, 1, 1}) +
                               at::tensor({0.4914f, 0.4822f, 0.4465f}).view({3, 1, 1})) *
                              255)
                                 .round();
    const at::Tensor padding = bytes[2].eq(0);
    const int top =
        padding[16][16].item<bool>() ? -99 : static_cast<int>(bytes[0][16][16].item<float>()) / 8 - 16;
    tops.insert(top);
    flips.insert(static_cast<int>(bytes[1][16][16].item<float>() - bytes[1][16][15].item<float>()));
    EXPECT_EQ(padding.all(1).sum().item<int64_t>(), std::abs(top));  // rows of black
  }
  EXPECT_EQ(tops, (std::set<int>{-4, -3, -2, -1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(flips, (std::set<int>{-8, 8}));
  EXPECT_TRUE(task->training({{1, 7}, {0, 3}}).images[1].equal(task->training({{0, 3}}).images[0]));
  const auto plain = make(*folder, "cifar10", {{"augment", false}});
  EXPECT_TRUE(plain->training({{0, 3}}).images[0].equal(plain->test(0, 1).images[0]));
}

TEST(Cifar100, TakesTheFineLabel) {
  const TemporaryFolder folder;
  write(folder.path() / "cifar-100-binary/train.bin", record(std::string("\x13\x62", 2)), 153700000);
  write(folder.path() / "cifar-100-binary/test.bin", record(std::string("\x01\x05", 2)), 30740000);
  const auto task = make(folder, "cifar100");
  EXPECT_EQ(task->classes(), 100);
  EXPECT_EQ(task->training_samples(), 50000);
  EXPECT_EQ(task->test_samples(), 10000);
  EXPECT_EQ(task->sort_values("class")[0], 0x62);
  EXPECT_EQ(task->test(0, 1).labels.item<int64_t>(), 5);
  EXPECT_NEAR(task->test(0, 1).images[0][0][5][9].item<float>(), normalised(40, 0.5071, 0.2675), 1e-5);
}

TEST(Cifar10Files, OfAnotherSizeAreRefusedWithACure) {
  const TemporaryFolder folder;
  EXPECT_EQ(error(folder, "cifar10"),
            (folder.path() / "cifar-10-batches-bin/data_batch_1.bin").string() +
                ": cannot be read (No such file or directory); unpack "
                "cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html");
  write(folder.path() / "cifar-10-batches-bin/data_batch_1.bin", record("\x03"), 30729999);
  EXPECT_EQ(error(folder, "cifar10"),
            (folder.path() / "cifar-10-batches-bin/data_batch_1.bin").string() +
                ": expected 30730000 bytes, 10000 images, got 30729999; unpack "
                "cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html");
  write(folder.path() / "cifar-10-batches-bin/data_batch_1.bin", record("\x0a"), 30730000);
  EXPECT_EQ(error(folder, "cifar10"), (folder.path() / "cifar-10-batches-bin/data_batch_1.bin").string() +
                                          ": image 0: expected a class below 10, got 10");
}

TEST(Cifar, ValidationShowsTrainingImagesAsTheyAre) {
  const TemporaryFolder folder;
  write_cifar10(folder);
  const auto validation = make(folder, "cifar10")->validation({0, 10000, 5});  // augmentation is on
  EXPECT_EQ(validation->test_samples(), 3);
  EXPECT_EQ(validation->training_samples(), 0);
  const Examples shown = validation->test(0, 3);
  const Examples plain =
      make(folder, "cifar10", {{"augment", false}})->training({{0, 0}, {10000, 0}, {5, 0}});
  EXPECT_TRUE(at::equal(shown.images, plain.images));
  EXPECT_TRUE(at::equal(shown.labels, plain.labels));
  EXPECT_EQ(shown.labels[1].item<int64_t>(), 3);
}

}  // namespace
}  // namespace bnlab::cifar_test
