#include "harness/transfer/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "harness/store/environment.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "tests/file_size_limit.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// An experiment with one run, as the launcher leaves it.
class Packing : public ::testing::Test {
 protected:
  Packing() {
    fs::create_directories(run_);
    write_json(run_ / kRecordFile, record_);
    for (const char* name : {"rank0.log", "job.json", "weights.safetensors", ".record.json.1.tmp"})
      write(run_ / name, name);
    write(run_ / kMetricsFile, "{\"kind\":\"train\",\"step\":10,\"loss\":0.5}\n");
    for (const char* name : {"README.md", "declared.json", kConfirmedFile}) write(folder_ / name, "a page");
    write(folder_ / kManifestFile, "of an earlier time");
    fs::create_directories(run_.parent_path() / ".2x4-cpu.attempt.1.another");
    write(run_.parent_path() / ".2x4-cpu.attempt.1.another/metrics.jsonl", "{}");
  }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
  Lines names() const {
    Lines found;
    for (const auto& entry : fs::recursive_directory_iterator(packed_))
      if (entry.is_regular_file()) found.push_back(entry.path().lexically_relative(packed_));
    std::ranges::sort(found);
    return found;
  }
  std::string refusal() const {
    try {
      pack_results(folder_, packed_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Json record_ = synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json();
  TemporaryFolder results_;
  const fs::path folder_ = results_.path() / "exp", packed_ = results_.path() / "sent";
  const fs::path run_ = folder_ / record_.at("run_id").get<std::string>() /
                        record_.at("placement").at("name").get<std::string>();
};

TEST_F(Packing, IsALedgerAndAllThatOthersNeedAndStaysThereToo) {
  const Packed packed = pack_results(folder_, packed_);
  EXPECT_EQ(packed.kept.runs, 1);
  EXPECT_EQ(packed.kept.left, Lines{});
  EXPECT_EQ(packed.files, 4);
  EXPECT_EQ(names(), (Lines{kManifestFile, "README.md", kConfirmedFile, "declared.json", kLedgerFile}));
  const fs::path place = packed_ / run_.lexically_relative(folder_);
  EXPECT_EQ(find_record(place)->json(), record_);
  EXPECT_EQ(read_metrics(place, [](const Json& line) { EXPECT_EQ(line.at("step"), 10); }), "");
  EXPECT_TRUE(fs::exists(run_ / kWeightsFile));
  EXPECT_EQ(read_text(folder_ / kManifestFile), "of an earlier time");
  const Checked checked = check_results(packed_);
  EXPECT_EQ(checked.problems, Lines{});
  EXPECT_EQ(checked.files, 4);
  EXPECT_EQ(checked.records, 1);
}

TEST_F(Packing, CoreutilsCheckTheManifestWhateverFilesAreCalled) {
  for (const char* name : {"a  b", "-c", "back\\slash", "two\nlines"}) write(folder_ / name, name);
  pack_results(folder_, packed_);
  EXPECT_EQ(check_results(packed_).problems, Lines{});
  EXPECT_EQ(std::system(("cd " + packed_.string() + " && sha256sum --quiet -c MANIFEST.sha256").c_str()), 0);
}

TEST_F(Packing, WhatWasChangedMissingOrAddedIsNamed) {
  pack_results(folder_, packed_);
  write(packed_ / "README.md", "another page");
  fs::remove(packed_ / "declared.json");
  write(packed_ / "new.csv", "");
  EXPECT_EQ(check_results(packed_).problems,
            (Lines{"README.md was changed", "declared.json is missing", "new.csv was added"}));
  fs::remove(packed_ / kManifestFile);
  EXPECT_EQ(check_results(packed_).problems, (Lines{"there is no MANIFEST.sha256; bnlab pack writes one"}));
}

TEST_F(Packing, AManifestThatIsNoneOrLeadsElsewhereNamesNoFileOfTheFolder) {
  pack_results(folder_, packed_);
  write(packed_ / kManifestFile, "0123  ../exp/README.md\n\n4567  /dev/zero\nx\n");
  const Lines problems = check_results(packed_).problems;
  ASSERT_EQ(problems.size(), 7U);
  EXPECT_EQ(problems[0], "../exp/README.md is missing");
  EXPECT_EQ(problems[1], "/dev/zero is missing");
  EXPECT_EQ(problems[2], "x is missing");
}

TEST_F(Packing, ADamagedRecordStaysAFolderAndIsNamed) {
  write(run_ / kRecordFile, "{\"kind\": ");
  EXPECT_EQ(pack_results(folder_, packed_).kept.left.size(), 1U);
  const Checked checked = check_results(packed_);
  ASSERT_EQ(checked.problems.size(), 1U);
  const std::string place = (run_ / kRecordFile).lexically_relative(folder_);
  EXPECT_EQ(checked.problems[0].rfind(place + " is damaged: no JSON", 0), 0U) << checked.problems[0];
}

TEST_F(Packing, RecordsOfOtherNumbersAreStaleAndNoProblem) {
  record_["code"]["numerics"] = code_version(record_.at("spec"), "cpu").at("numerics");
  ASSERT_FALSE(record_["code"]["numerics"].empty());
  record_["code"]["numerics"]["base"] = "0000000000000000";
  write_json(run_ / kRecordFile, record_);
  pack_results(folder_, packed_);
  const Checked checked = check_results(packed_);
  EXPECT_EQ(checked.stale, (std::map<std::string, int>{{"what computes it has changed since: base", 1}}));
  EXPECT_EQ(checked.records, 1);
  EXPECT_EQ(checked.problems, Lines{});
}

TEST_F(Packing, OfAGpuCheckLogsGoAlongAndWeightsStay) {
  fs::create_directories(folder_ / "first");
  fs::rename(run_.parent_path(), folder_ / "first/run");
  write(folder_ / "check.json", "{}");
  EXPECT_EQ(pack_results(folder_, packed_).kept.runs, 0);
  const fs::path place = packed_ / "first/run" / run_.filename();
  for (const char* name : {kRecordFile, "rank0.log", "job.json"})
    EXPECT_TRUE(fs::exists(place / name)) << name;
  EXPECT_FALSE(fs::exists(place / kWeightsFile));
  EXPECT_EQ(check_results(packed_).problems, Lines{});
  EXPECT_TRUE(holds_gpu_check(packed_));
  EXPECT_THROW(gpu_check_text(packed_), Error) << "no page";
  write(packed_ / "table.txt",
        "machine    NVIDIA H100\n\nfirst      ok         one rank: 1e-15\nfirst      ok\nbench      slow     "
        "  unet\n");
  EXPECT_EQ(gpu_check_text(packed_),
            "machine    NVIDIA H100\n\nfirst      ok\nbench      slow       unet\n1 verdicts ok\n");
}

TEST_F(Packing, NothingIsThereWhereItCouldNotBeWritten) {
  {
    write(folder_ / "figure.svg", std::string(100'000, 'x'));
    const FileSizeLimit full_disk(50'000);
    EXPECT_NE(refusal().find("cannot copy"), std::string::npos) << refusal();
  }
  EXPECT_FALSE(fs::exists(packed_));
  write(folder_ / kLedgerFile, "no JSON\n");
  EXPECT_NE(refusal().find((folder_ / kLedgerFile).string() + ":1"), std::string::npos) << refusal();
  EXPECT_FALSE(fs::exists(packed_));
}

TEST_F(Packing, WhatIsThereIsNotWrittenOver) {
  fs::create_directories(packed_);
  EXPECT_EQ(refusal(), packed_.string() + " is there already; name a new folder");
}

}  // namespace
}  // namespace bnlab
