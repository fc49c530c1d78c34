#include "harness/training/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/support/error.hpp"

namespace {
std::vector<std::string> synced;  // by this process: what each descriptor stood for
}

// Stands before the C library's function and does the same.
extern "C" int fsync(int descriptor) {
  synced.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string());
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace bnlab {
namespace {

class Safetensors : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  // A file with this header and this many bytes of data.
  void write(const std::string& header, size_t data, int64_t length = -1) const {
    std::ofstream out(file_, std::ios::binary);
    const auto stated = static_cast<uint64_t>(length < 0 ? static_cast<int64_t>(header.size()) : length);
    for (int i = 0; i < 8; ++i) out.put(static_cast<char>(stated >> (8 * i) & 0xff));
    out << header << std::string(data, 'x');
  }

  std::string refusal() const {
    try {
      read_safetensors(file_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data);
      const std::string text = error.what();
      EXPECT_EQ(text.rfind(file_, 0), 0u) << text;
      return text;
    }
  }

  void expect_refused(const std::string& header, size_t data, const std::string& why) {
    write(header, data);
    EXPECT_NE(refusal().find(why), std::string::npos) << refusal();
  }

  std::string file_ = (std::filesystem::temp_directory_path() /
                       ("bnlab_safetensors_" + std::to_string(::getpid()) + ".safetensors"))
                          .string();
};

TEST_F(Safetensors, ReadWhatWasWritten) {
  const at::Tensor picture =
      at::arange(24, at::kDouble).view({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  const std::vector<NamedTensor> written = {{"b", picture},
                                            {"a", at::arange(3, at::kFloat)},
                                            {"tower:1/x", at::full({1, 2}, 0.5).to(at::kBFloat16)},
                                            {"empty", at::empty({0, 3}, at::kHalf)},
                                            {"count", at::full({}, 7, at::kLong)}};
  const int64_t bytes = write_safetensors(file_, written);
  EXPECT_EQ(static_cast<uint64_t>(bytes), std::filesystem::file_size(file_));
  const std::vector<NamedTensor> read = read_safetensors(file_);
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, written[i].name);
    EXPECT_EQ(read[i].tensor.scalar_type(), written[i].tensor.scalar_type());
    EXPECT_TRUE(at::equal(read[i].tensor, written[i].tensor)) << read[i].name;
  }
}

TEST_F(Safetensors, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("a file?"), std::string::npos);
}

// A power cut after the rename must not leave an empty file under the name.
TEST_F(Safetensors, TheFileAndItsNameReachTheDisk) {
  synced.clear();
  write_safetensors(file_, {{"a", at::arange(3, at::kFloat)}});
  ASSERT_EQ(synced.size(), 2u);
  const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
  EXPECT_EQ(std::filesystem::path(synced[0]).parent_path(), folder);  // the temporary file
  EXPECT_EQ(std::filesystem::path(synced[1]), folder);
}

TEST_F(Safetensors, ADamagedFileIsRefusedWithTheReason) {
  EXPECT_NE(refusal().find("is it there"), std::string::npos);
  write("", 0, 1 << 20);
  EXPECT_NE(refusal().find("header's length"), std::string::npos);
  std::ofstream(file_, std::ios::binary) << "abc";
  EXPECT_NE(refusal().find("header's length"), std::string::npos);
  expect_refused("[1]", 0, "no JSON object");
  expect_refused("{\"a\": ", 0, "no JSON at byte 7");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1]}})", 4, "a: expected dtype, shape and data_offsets");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "a: expected dtype");
  expect_refused(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1,
                 "a: expected dtype F64");
  const std::string bounds = "do not hold shape";
  expect_refused(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4, bounds);
  expect_refused(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 4, bounds);
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4, bounds);
  expect_refused(
      R"({"a": {"dtype": "F32", "shape": [1099511627776, 1099511627776], "data_offsets": [0, 4]}})", 4,
      "too large");
  expect_refused(
      R"({"a": {"dtype": "F32", "shape": [0, 1099511627776, 1099511627776], "data_offsets": [0, 0]}})", 0,
      "too large");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [9223372036854775808, 0], "data_offsets": [0, 0]}})", 0,
                 "too large");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 8, "its tensors end");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                     "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                 4, "b: its data begin at 0, expected 4");
}

TEST_F(Safetensors, AHeaderThatIsNestedDeeperThanAnyIsRefusedAtOnce) {
  const std::string why = "nested deeper than 3 levels";
  expect_refused("{\"a\": " + std::string(100'000, '['), 0, why);
  expect_refused(R"({"a": {"dtype": "F32", "shape": [[1]], "data_offsets": [0, 4]}})", 4, why);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a" + std::to_string(i) + "\": ";
  expect_refused(objects, 0, why);
  expect_refused(std::string(100'000, '['), 0, why);
}

TEST_F(Safetensors, ATensorThatIsNamedTwiceIsRefused) {
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                     "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                 8, R"(of the header: it has the key "a" twice)");
  expect_refused(R"({"a": {"dtype": "F32", "shape": [1], "shape": [1, 1], "data_offsets": [0, 4]}})", 4,
                 R"(of the header: it has the key "shape" twice)");
}

TEST_F(Safetensors, ManyTensorsAreReadAsTheyWereWritten) {
  std::vector<NamedTensor> written;
  for (int i = 0; i < 20'000; ++i)
    written.push_back({"tensor" + std::to_string(i), at::full({}, i, at::kLong)});
  write_safetensors(file_, written);
  const std::vector<NamedTensor> read = read_safetensors(file_);
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    ASSERT_EQ(read[i].name, written[i].name);
    ASSERT_EQ(read[i].tensor.item<int64_t>(), static_cast<int64_t>(i));
  }
}

TEST_F(Safetensors, AFileIsReadTensorByTensorInAnyOrder) {
  std::ofstream(file_, std::ios::binary) << safetensors_bytes({{"a", at::arange(3)}, {"b", at::ones({2, 2})}},
                                                              {{"key", "te\"xt"}, {"other", ""}});
  SafeTensorsFile file(file_);
  const SafeTensorsHeader& header = file.header();
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_TRUE(at::equal(file.read(header.tensors[1]), at::ones({2, 2})));
  EXPECT_TRUE(at::equal(file.read(header.tensors[0]), at::arange(3)));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"key", "te\"xt"}, {"other", ""}}));
  const SafeTensorsHeader again = parse_safetensors_header(file.header_text(), file.data_bytes(), "there");
  EXPECT_EQ(again.tensors[1].name, "b");
  EXPECT_EQ(again.tensors[1].shape, (std::vector<int64_t>{2, 2}));
}

TEST_F(Safetensors, MetadataOfOtherWritersIsNoTensor) {
  write(R"({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
        4);
  ASSERT_EQ(read_safetensors(file_).size(), 1u);
}

}  // namespace
}  // namespace bnlab
