#include "harness/transfer/gpu_check_page.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

Json page_json() {
  return {{"kind", "bnlab.gpu_check"},
          {"schema_version", 1},
          {"machine", "NVIDIA H100, NVIDIA H100"},
          {"revision", "0123456789ab"},
          {"driver", "580.65"},
          {"written", "2026-11-23 12:00 UTC"},
          {"simulated", false},
          {"rows",
           {{{"part", "first"}, {"verdict", "ok"}, {"text", "one rank: 1e-15"}},
            {{"part", "first"}, {"verdict", "ok"}, {"text", "CUDA graphs: 52 steps"}},
            {{"part", "bench"}, {"verdict", "slow"}, {"text", "unet: 1.2 (1.5 asked)"}}}}};
}

std::string refusal(const Json& json) {
  try {
    gpu_check_page({{kGpuCheckFile, json.is_string() ? json.get<std::string>() : json.dump()}}, "sent.tar");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GpuCheckPage, TellsTheMachineTheVerdictsAndWhatIsNotOk) {
  const Files files{{kGpuCheckFile, page_json().dump()}};
  ASSERT_TRUE(holds_gpu_check(files));
  EXPECT_EQ(gpu_check_text(gpu_check_page(files, "sent.tar")),
            "machine    NVIDIA H100, NVIDIA H100\n"
            "revision   0123456789ab\n"
            "driver     580.65\n"
            "written    2026-11-23 12:00 UTC\n"
            "first      2 ok\n"
            "bench      1 slow\n"
            "bench      slow: unet: 1.2 (1.5 asked)\n");
}

TEST(GpuCheckPage, SaysThatTimesOfSimulatedGpusMeanNothing) {
  Json json = page_json();
  json["simulated"] = true;
  EXPECT_NE(
      gpu_check_text(gpu_check_page({{kGpuCheckFile, json.dump()}}, "")).find("times      mean nothing"),
      std::string::npos);
}

TEST(GpuCheckPage, ADamagedOrForeignPageIsNamed) {
  const std::string named = "sent.tar: check.json is no page of scripts/gpu_check.sh: ";
  EXPECT_EQ(refusal("{\"kind\": ").rfind(named, 0), 0u);
  Json foreign = page_json(), newer = page_json(), cut = page_json();
  foreign["kind"] = "another";
  newer["schema_version"] = 2;
  cut["rows"][0].erase("verdict");
  EXPECT_EQ(refusal(foreign), named + "its kind is \"another\"");
  EXPECT_EQ(refusal(newer), named + "its version is 2, this program reads 1");
  EXPECT_EQ(refusal(cut).rfind(named, 0), 0u);
}

// A folder as scripts/gpu_check.sh leaves it.
class GpuCheckArchive : public ::testing::Test {
 protected:
  GpuCheckArchive() : folder_(parent_.path() / "h100") {
    fs::create_directories(folder_ / "first/run/1x8-cuda");
    write_json(folder_ / kGpuCheckFile, page_json());
    write_json(folder_ / "first/run/1x8-cuda" / kRecordFile, record_);
    std::ofstream(folder_ / "first.log") << "what it said";
    std::ofstream(folder_ / "first/run/1x8-cuda/weights.safetensors") << "large";
  }
  TemporaryFolder parent_;
  fs::path folder_;
  Json record_ = synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json();
};

TEST_F(GpuCheckArchive, KeepsLogsAndLeavesWeights) {
  const Files files = files_to_pack(folder_);
  EXPECT_TRUE(files.contains("first.log"));
  EXPECT_TRUE(files.contains("first/run/1x8-cuda/record.json"));
  EXPECT_FALSE(files.contains("first/run/1x8-cuda/weights.safetensors"));
}

TEST_F(GpuCheckArchive, RecordsOfOtherNumbersAreStaleAndNoProblem) {
  record_["code"]["numerics"] = code_version(record_.at("spec"), "cpu").at("numerics");
  ASSERT_FALSE(record_["code"]["numerics"].empty());
  Files files{{"run/record.json", record_.dump()}};
  EXPECT_TRUE(check_files(files).stale.empty());
  record_["code"]["numerics"]["base"] = "0000000000000000";
  files["run/record.json"] = record_.dump();
  const Checked checked = check_files(files);
  ASSERT_EQ(checked.stale.size(), 1u);
  EXPECT_EQ(*checked.stale.begin(),
            (std::pair<const std::string, int>{"what computes it has changed since: base", 1}));
  EXPECT_EQ(checked.records, 1);
}

TEST_F(GpuCheckArchive, OtherFilesAreRefusedInOneSentence) {
  const auto refused = [&](const std::string& bytes) -> std::string {
    const fs::path file = parent_.path() / "sent.tar";
    write_atomically(file, bytes);
    try {
      unpacked(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refused(tar_archive({{"letters/a.txt", "dear"}})).find("no archive of results"),
            std::string::npos);
  EXPECT_NE(refused("\x1f\x8b compressed").find("gunzip"), std::string::npos);
  EXPECT_NE(refused("a picture").find("no archive of results, as bnlab pack"), std::string::npos);
  EXPECT_EQ(refused(packed(files_to_pack(folder_), "h100")), "");
}

}  // namespace
}  // namespace bnlab
