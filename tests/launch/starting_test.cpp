// When a run is started, what may lie in its way, and with which settings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "harness/launch/process.hpp"
#include "harness/store/attempts.hpp"
#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using test::behaves;
using test::run;
using test::Scratch;

TEST(Starting, ARunWhoseLaunchersWereKilledIsTriedAgainHoweverOften) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(2));
  const auto folder = scratch.records()[0].file().parent_path();
  fs::remove(folder / kRecordFile);
  scratch.leave_attempts(folder, 5);
  EXPECT_EQ(run(spec, scratch.options(2)).finished, 1);
  EXPECT_TRUE(claims_of(folder).empty());
}

TEST(Starting, ADamagedClaimIsToldAndItsRunStarts) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  const auto folder = scratch.records()[0].file().parent_path();
  fs::remove(folder / kRecordFile);
  std::ofstream(claim_file(folder, 1)) << R"({"pid": "x"})";
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(".claim.1: pid: expected an integer, got \"x\""), std::string::npos) << said;
}

// Ranks of the attempt before may still hold its log open, for their launcher was only stopped.
TEST(Starting, ARunThatIsTakenOverKeepsItsCheckpointsAndHasALogOfItsOwn) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("exit"));
  run(spec, scratch.options(1));
  const auto folder = scratch.records()[0].file().parent_path();
  const fs::path before = attempt_folder(folder, 1), checkpoint = fs::path(kCheckpointsFolder) / "step4";
  fs::rename(folder, before);
  fs::remove(before / kRecordFile);
  fs::create_directories(before / kCheckpointsFolder);
  std::ofstream(before / checkpoint) << "of the attempt before";
  fs::create_hard_link(before / kMetricsFile, scratch / "held");
  scratch.leave_attempts(folder, 1);
  EXPECT_EQ(run(spec, scratch.options(1)).failed, 1);
  EXPECT_TRUE(fs::exists(folder / checkpoint));
  EXPECT_FALSE(fs::exists(before));
  EXPECT_EQ(fs::hard_link_count(scratch / "held"), 1U);
}

TEST(Starting, ARunThatOthersHaveIsLeftToThem) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  run(spec, scratch.options(1));
  const auto folder = scratch.records()[0].file().parent_path();
  fs::remove_all(folder);
  std::ofstream(claim_file(folder, 1)) << R"({"host": "another", "pid": 7})";  // just now
  LaunchSummary summary = run(spec, scratch.options(1));
  EXPECT_EQ(summary.held, 1);
  EXPECT_EQ(summary.skipped, 1);
  EXPECT_FALSE(fs::exists(folder));
  fs::remove(claim_file(folder, 1));
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 1);
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "results")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name.front() != '.' || name == ".hashes" || name == ".data_checks") << name;
  }
}

TEST(Starting, SeveralProcessesShareOneMatrix) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1, 2, 3, 4, 5]})");
  std::vector<Process> processes;
  for (int i = 0; i < 3; ++i) {
    ChildCommand command;
    command.argv = {scratch.options(1).program, "run", spec, "--ranks", "1", "--device", "cpu", "--results",
                    scratch / "results"};
    command.log_file = scratch / "log";
    processes.emplace_back(command);
  }
  for (Process& process : processes) {
    const int code = process.wait().code;
    EXPECT_TRUE(code == 0 || code == 75) << code;
  }
  EXPECT_EQ(run(spec, scratch.options(1)).skipped, 6);
  EXPECT_EQ(scratch.records().size(), 6U);
  for (const Record& record : scratch.records()) EXPECT_EQ(record.status(), Status::ok);
}

TEST(Starting, DeletesNothingBehindALink) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(2));
  const auto folder = scratch.records()[0].file().parent_path();
  for (const fs::path& place : {folder, folder.parent_path()}) {
    const fs::path elsewhere = scratch / "elsewhere";
    fs::rename(place, elsewhere);
    fs::create_directory_symlink(elsewhere, place);
    const fs::path kept = (place == folder ? elsewhere : elsewhere / folder.filename()) / "job.json";
    fs::remove(kept.parent_path() / kRecordFile);
    EXPECT_THROW(run(spec, scratch.options(2)), Error);
    EXPECT_TRUE(fs::exists(kept));
    fs::remove(place);
    fs::rename(elsewhere, place);
  }
}

// How the threads of a rank of another launcher wait, in whose environment `variables` are set beside its
// place.
Json wait_policy_with(std::map<std::string, std::string> variables) {
  const Scratch scratch;
  ChildCommand command;
  command.argv = {
      scratch.options(1).program, "run", scratch.write_spec(behaves("ok")), "--device", "cpu", "--results",
      scratch / "results"};
  command.environment = std::move(variables);
  command.environment.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  command.log_file = scratch / "log";
  EXPECT_EQ(Process(command).wait().code, 0);
  EXPECT_EQ(scratch.records().at(0).at("placement.launcher"), "environment");
  return scratch.records().at(0).at("result.seen.wait_policy");
}

// Libraries read these variables once, at the start of the process.
TEST(Starting, ARankOfAnotherLauncherStartsAnewWithWhatItsEnvironmentLacks) {
  unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(wait_policy_with({}), "PASSIVE");
}

TEST(Starting, NoRankOfAnotherLauncherSpinsWhileItWaits) {
  EXPECT_EQ(wait_policy_with({{"OMP_WAIT_POLICY", "ACTIVE"}}), "PASSIVE");
}

}  // namespace
}  // namespace bnlab
