// When a run is started, what may lie in its way, and with which settings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "harness/error.hpp"
#include "harness/launch/process.hpp"
#include "harness/records/attempts.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using test::behaves;
using test::run;
using test::Scratch;

TEST(Starting, ARunIsTriedThreeTimesWithoutARecord) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(2));
  const auto folder = scratch.records()[0].file().parent_path();
  for (const int attempts : {2, 3}) {
    fs::remove(folder / kRecordFile);
    set_attempts(folder, attempts);
    const LaunchSummary summary = run(spec, scratch.options(2));
    EXPECT_EQ(summary.finished, attempts < 3 ? 1 : 0);
    EXPECT_EQ(summary.failed, attempts < 3 ? 0 : 1);
    EXPECT_EQ(attempts_without_end(folder), 0);
  }
  EXPECT_NE(scratch.records()[0].at("outcome.message").get<std::string>().find("3 attempts"),
            std::string::npos);
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

// Libraries read these variables once, at the start of the process.
TEST(Starting, ARankOfAnotherLauncherStartsAnewWithWhatItsEnvironmentLacks) {
  const Scratch scratch;
  ChildCommand command;
  command.argv = {
      scratch.options(1).program, "run", scratch.write_spec(behaves("ok")), "--device", "cpu", "--results",
      scratch / "results"};
  command.environment = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  command.log_file = scratch / "log";
  unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(Process(command).wait().code, 0);
  ASSERT_EQ(scratch.records().size(), 1U);
  EXPECT_EQ(scratch.records()[0].at("placement.launcher"), "environment");
  EXPECT_EQ(scratch.records()[0].at("result.seen.wait_policy"), "PASSIVE");
}

}  // namespace
}  // namespace bnlab
