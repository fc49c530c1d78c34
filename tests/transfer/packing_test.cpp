#include "harness/transfer/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// An experiment with one run, as the launcher leaves it.
class Packing : public ::testing::Test {
 protected:
  Packing() : folder_(results_.path() / "exp"), run_("run/1x8-cpu") {
    fs::create_directories(folder_ / run_);
    write_json(folder_ / run_ / kRecordFile, synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json());
    for (const char* name :
         {"metrics.jsonl", "rank0.log", "job.json", "weights.safetensors", ".record.json.1.tmp"}) {
      std::ofstream(folder_ / run_ / name) << name;
    }
    std::ofstream(folder_ / "README.md") << "a page";
    const fs::path under_way = folder_ / "run/.2x4-cpu.attempt.1.another";
    fs::create_directories(under_way);
    std::ofstream(under_way / "metrics.jsonl") << "{}";
  }
  Files round_trip() const {
    write_atomically(results_.path() / "exp.tar", packed(files_to_pack(folder_), "exp"));
    return unpacked(results_.path() / "exp.tar");
  }
  TemporaryFolder results_;
  fs::path folder_, run_;
};

using Lines = std::vector<std::string>;

TEST_F(Packing, KeepsWhatOthersNeedAndArrivesUnchanged) {
  const Files files = round_trip();
  EXPECT_EQ(files.size(), 4u);
  EXPECT_EQ(files.at("README.md"), "a page");
  EXPECT_EQ(files.at("run/1x8-cpu/metrics.jsonl"), "metrics.jsonl");
  const Checked checked = check_files(files);
  EXPECT_EQ(checked.problems, Lines{});
  EXPECT_EQ(checked.files, 3);
  EXPECT_EQ(checked.records, 1);
}

TEST_F(Packing, WhatWasChangedMissingOrAddedIsNamed) {
  Files files = round_trip();
  files["README.md"] += "!";
  files.erase("run/1x8-cpu/metrics.jsonl");
  files["new.csv"] = "";
  EXPECT_EQ(check_files(files).problems,
            (Lines{"README.md was changed", "run/1x8-cpu/metrics.jsonl is missing", "new.csv was added"}));
  files.erase(kManifestFile);
  EXPECT_EQ(check_files(files).problems, (Lines{"there is no MANIFEST.sha256; bnlab pack writes one"}));
}

TEST_F(Packing, ADamagedRecordIsNamed) {
  std::ofstream(folder_ / run_ / kRecordFile) << "{\"kind\": ";
  const Checked checked = check_files(round_trip());
  ASSERT_EQ(checked.problems.size(), 1u);
  EXPECT_EQ(checked.problems[0].rfind("run/1x8-cpu/record.json is damaged: no JSON", 0), 0u)
      << checked.problems[0];
}

TEST(Archive, EveryCutIsNoticed) {
  const std::string whole = tar_archive({{"a/b", "hello"}, {"a/c", std::string(600, 'c')}});
  EXPECT_EQ(read_tar(whole, "whole").at("a/b"), "hello");
  for (size_t size = 0; size < whole.size() - 1024; ++size)  // the last two blocks are the end
    EXPECT_THROW(read_tar(std::string_view(whole).substr(0, size), "cut"), Error) << size;
}

TEST(Archive, APathThatLeadsElsewhereIsRefused) {
  EXPECT_THROW(read_tar(tar_archive({{"../a", ""}}), "up"), Error);
  EXPECT_THROW(read_tar(tar_archive({{"/a", ""}}), "root"), Error);
  EXPECT_THROW(read_tar(std::string(2048, 'x'), "noise"), Error);
}

// A header with another text in its size field, and the sum that fits it.
std::string with_size_field(std::string archive, const std::string& text) {
  archive.replace(124, 12, text + std::string(12 - text.size(), '\0'));
  archive.replace(148, 8, 8, ' ');
  size_t sum = 0;
  for (const char c : archive.substr(0, 512)) sum += static_cast<unsigned char>(c);
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%06zo", sum);
  return archive.replace(148, 7, digits.data(), 7);
}

TEST(Archive, ASizeThatIsNoOctalNumberIsRefused) {
  const std::string archive = tar_archive({{"a/b", "hello"}});
  EXPECT_EQ(read_tar(with_size_field(archive, "5"), "five").at("a/b"), "hello");
  for (const char* size : {"-1", "0x5", " 5", "+5", "5 5", "8", "", "7777777777777"})
    EXPECT_THROW(read_tar(with_size_field(archive, std::string(size).substr(0, 12)), size), Error) << size;
}

TEST(Archive, AFileThatComesTwiceIsRefused) {
  const std::string once = tar_archive({{"a/b", "hello"}});
  EXPECT_THROW(read_tar(once.substr(0, 1024) + once, "twice"), Error);
  EXPECT_THROW(read_tar(tar_archive({{"a/./b", ""}, {"a/b", ""}}), "dot"), Error);
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "two.tar";
  write_atomically(file, tar_archive({{"a/x", "1"}, {"b/x", "2"}, {"a/MANIFEST.sha256", ""}}));
  EXPECT_THROW(unpacked(file), Error);
}

TEST(Archive, LongPathsAreCutAtASlashAndComeBack) {
  const std::string path = "exp/" + std::string(90, 'r') + "/2x4-cpu-sockets/record.json";
  EXPECT_EQ(read_tar(tar_archive({{path, "{}"}}), "long").at(path), "{}");
  EXPECT_THROW(tar_archive({{std::string(300, 'n'), ""}}), Error);
}

TEST(Sha256, HasThePublishedValues) {  // FIPS 180-4's examples
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace bnlab
