#include "harness/transfer/event_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "harness/store/run_folder.hpp"
#include "harness/support/text_file.hpp"
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

// "train/loss 0.5 in step 10 at 102", of a frame whose step and lengths take a byte each.
std::string told(const std::string& frame) {
  const auto length = static_cast<size_t>(frame.at(16));
  std::ostringstream text;
  text << frame.substr(17, length) << " " << read_as<float>(frame, 18 + length) << " in step "
       << int{frame.at(10)} << " at " << read_as<double>(frame, 1);
  return text.str();
}

class EventFile : public ::testing::Test {
 protected:
  void log(const std::string& lines) const {
    std::filesystem::create_directories(run_);
    std::ofstream(run_ / kMetricsFile) << lines;
  }
  std::vector<std::string> frames() const { return frames_of(event_file(run_, 100)); }

  const TemporaryFolder results_;
  const std::filesystem::path run_ = results_.path() / "small_batch" / "sync-8x2" / "1x8-cpu";
};

TEST_F(EventFile, IsARowOfFramesThatBeginsWithItsVersion) {
  EXPECT_EQ(masked("123456789"), ((0xe3069283U >> 15) | (0xe3069283U << 17)) + 0xa282ead8);
  log("{\"kind\":\"train\",\"step\":300,\"loss\":0.25,\"time_s\":1.5}\n");
  ASSERT_EQ(frames().size(), 2U);
  EXPECT_NE(frames()[0].find("brain.Event:2"), std::string::npos);
  // wall_time = 101.5; step = 300 (two bytes); summary: value: tag, simple_value = 0.25.
  const std::string wall_time("\x09\0\0\0\0\0\x60\x59\x40", 9), step("\x10\xac\x02", 3);
  const std::string value("\x0a\x0atrain/loss\x15\0\0\x80\x3e", 17);
  EXPECT_EQ(frames()[1], wall_time + step + "\x2a\x13\x0a\x11" + value);
}

TEST_F(EventFile, HoldsLossRateAndTheNumbersOfEvaluations) {
  log(R"({"kind":"start","schema_version":1}
{"kind":"train","step":10,"loss":1.5,"lr":0.25,"time_s":2}
{"kind":"train","step":20,"loss":null,"lr":0.125,"time_s":3}
{"kind":"eval","step":20,"population":"batch","time_s":4,"metrics":{"mean_iou":0.5,"class_iou":[0.5,null]}}
{"kind":"train","step":30,"lo)");
  std::vector<std::string> texts;
  for (size_t i = 1; i < frames().size(); ++i) texts.push_back(told(frames()[i]));
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "train/loss 1.5 in step 10 at 102", "train/lr 0.25 in step 10 at 102",
                       "train/lr 0.125 in step 20 at 103",  // the loss of step 20 was not finite
                       "batch/mean_iou 0.5 in step 20 at 104"}));
}

TEST_F(EventFile, IsWrittenForEveryRunThatHasALog) {
  log("{\"kind\":\"train\",\"step\":10,\"loss\":1.5,\"time_s\":2}\n");
  std::filesystem::create_directories(results_.path() / "small_batch" / "begun" / "1x8-cpu");
  const TemporaryFolder out;
  std::vector<std::string> problems;
  EXPECT_EQ(export_event_files(results_.path(), "small_batch", out.path(), problems), 1);
  EXPECT_TRUE(problems.empty());
  const std::string file = read_text(out.path() / "sync-8x2" / "1x8-cpu" / "events.out.tfevents.0.bnlab");
  EXPECT_EQ(frames_of(file).size(), 2U);
}

}  // namespace
}  // namespace bnlab
