#include "harness/transfer/event_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

template <class T>
T read_as(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The checksum as its definition says: bit by bit, then rotated and shifted.
uint32_t masked(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

// The data of each frame, after its checksums were held against the bytes.
std::vector<std::string> frames_of(const std::string& file) {
  std::vector<std::string> frames;
  for (size_t at = 0; at < file.size();) {
    const auto length = read_as<uint64_t>(file, at);
    EXPECT_EQ(read_as<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    frames.push_back(file.substr(at + 12, length));
    EXPECT_EQ(read_as<uint32_t>(file, at + 12 + length), masked(frames.back()));
    at += 16 + length;
  }
  return frames;
}

TEST(EventFile, TheChecksumIsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the check value that the catalogues of checksums give
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, IsARowOfFramesThatBeginsWithItsVersion) {
  const std::vector<std::string> frames = frames_of(event_file({{1.5, 300, "train/loss", 0.25}}));
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_NE(frames[0].find("brain.Event:2"), std::string::npos);
  // wall_time = 1.5; step = 300 (two bytes); summary: value: tag, simple_value = 0.25.
  const std::string wall_time("\x09\0\0\0\0\0\0\xf8\x3f", 9), step("\x10\xac\x02", 3);
  const std::string value("\x0a\x0atrain/loss\x15\0\0\x80\x3e", 17);
  EXPECT_EQ(frames[1], wall_time + step + "\x2a\x13\x0a\x11" + value);
}

TEST(EventFile, HoldsLossRateAndTheNumbersOfEvaluations) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  std::ofstream(file) << R"({"kind":"start","schema_version":1})"
                      << "\n"
                      << R"({"kind":"train","step":10,"loss":1.5,"lr":0.1,"time_s":2})"
                      << "\n"
                      << R"({"kind":"train","step":20,"loss":null,"lr":0.05,"time_s":3})"
                      << "\n"
                      << R"({"kind":"eval","step":20,"population":"batch","time_s":4,)"
                      << R"("metrics":{"mean_iou":0.5,"class_iou":[0.5,null]}})"
                      << "\n"
                      << R"({"kind":"train","step":30,"lo)";
  const std::vector<Scalar> scalars = scalars_of(folder.path(), 100);
  ASSERT_EQ(scalars.size(), 4u);
  EXPECT_EQ(scalars[0].tag, "train/loss");
  EXPECT_EQ(scalars[0].wall_time, 102);
  EXPECT_EQ(scalars[2].tag, "train/lr");  // the loss of step 20 was not finite
  EXPECT_EQ(scalars[3].tag, "batch/mean_iou");
  EXPECT_EQ(scalars[3].step, 20);
}

TEST(EventFile, IsWrittenForEveryRunThatHasALog) {
  const TemporaryFolder results, out;
  const auto run = results.path() / "small_batch" / "sync-8x2" / "1x8-cpu";
  std::filesystem::create_directories(run);
  std::ofstream(run / "metrics.jsonl") << R"({"kind":"train","step":10,"loss":1.5,"time_s":2})"
                                       << "\n";
  std::filesystem::create_directories(results.path() / "small_batch" / "begun" / "1x8-cpu");
  std::vector<std::string> problems;
  EXPECT_EQ(export_event_files(results.path(), "small_batch", out.path(), problems), 1);
  EXPECT_TRUE(problems.empty());
  const std::string file = read_text(out.path() / "sync-8x2" / "1x8-cpu" / "events.out.tfevents.0.bnlab");
  EXPECT_EQ(frames_of(file).size(), 2u);
}

}  // namespace
}  // namespace bnlab
