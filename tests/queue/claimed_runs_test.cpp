// Which runs are claimed and by whom, as status says it: claims of this process and of one that died.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "harness/queue/claims.hpp"
#include "harness/report/status.hpp"
#include "harness/store/attempts.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::held_runs_test {
namespace {

namespace fs = std::filesystem;

class ClaimedRuns : public ::testing::Test {
 protected:
  std::optional<Claim> take() {
    const ActiveProcesses active(results_.path());
    std::string holder;
    return Claim::take(
        run_, active, std::chrono::seconds(900), [](const fs::path&) { return false; }, holder);
  }
  void die_with_the_claim() {
    const pid_t child = ::fork();
    if (child == 0) {
      take();
      ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }
  void renewed_at(int number, time_t seconds) const {
    const std::array<timespec, 2> times = {{{seconds, 0}, {seconds, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, claim_file(run_, number).c_str(), times.data(), 0), 0);
  }
  Json told() const { return claimed_runs(results_.path(), "exp").at(0).json(); }
  std::string said() const { return status_text({status_of("exp", results_.path())}); }

  TemporaryFolder results_;
  fs::path run_ = results_.path() / "exp" / "sync-8x2-seed0" / "2x4-cpu";
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ClaimedRuns, AreNamedWithTheProcessThatHasThem) {
  EXPECT_TRUE(claimed_runs(results_.path(), "exp").empty());
  auto claim = take();
  const std::vector<ClaimedRun> claimed = claimed_runs(results_.path(), "exp");
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].run_id, "sync-8x2-seed0");
  EXPECT_EQ(claimed[0].placement, "2x4-cpu");
  EXPECT_FALSE(claimed[0].died);
  EXPECT_LT(claimed[0].quiet_s, 60);
  EXPECT_EQ(claimed[0].process.at("pid"), ::getpid());
  EXPECT_TRUE(has(said(), "\nRuns under way:\nexp: sync-8x2-seed0 2x4-cpu: process " +
                              std::to_string(::getpid()) + " on "))
      << said();
  const Json running = status_json({status_of("exp", results_.path())}).at(0).at("running");
  EXPECT_EQ(running.at(0).at("pid"), ::getpid());
  claim->publish(false);
  EXPECT_TRUE(claimed_runs(results_.path(), "exp").empty());
  EXPECT_FALSE(has(said(), "under way")) << said();
}

TEST_F(ClaimedRuns, OfAProcessThatDiedSayHowTheyGoOn) {
  die_with_the_claim();
  EXPECT_TRUE(has(said(), "which has died: bnlab run takes it over")) << said();
  EXPECT_EQ(told().at("died"), true);
  auto claim = take();
  ASSERT_TRUE(claim);
  EXPECT_EQ(told().at("died"), false);
  EXPECT_EQ(told().at("attempt"), 2);
  EXPECT_TRUE(has(said(), "2x4-cpu: attempt 2, process " + std::to_string(::getpid()))) << said();
}

TEST_F(ClaimedRuns, AreNotThoseThatEndedJustBeforeTheirProcessDied) {
  die_with_the_claim();
  fs::create_directories(run_);
  write_atomically(run_ / kRecordFile, "{}");
  EXPECT_TRUE(claimed_runs(results_.path(), "exp").empty());
}

TEST_F(ClaimedRuns, AreToldAsDamagedWhereTheirClaimIs) {
  fs::create_directories(run_.parent_path());
  write_atomically(claim_file(run_, 1), R"({"pid": "x"})");
  const ExperimentStatus status = status_of("exp", results_.path());
  EXPECT_TRUE(status.claimed.empty());
  ASSERT_EQ(status.problems.size(), 1U);
  EXPECT_TRUE(has(status.problems[0], ".2x4-cpu.claim.1: pid: expected an integer, got \"x\""))
      << status.problems[0];
}

TEST_F(ClaimedRuns, AreDoubtedWithoutASignOfLifeAndNobodysAfterALostWorld) {
  auto claim = take();
  renewed_at(1, std::time(nullptr) - 1000);
  EXPECT_TRUE(has(said(), "without a sign of life for 100")) << said();
  EXPECT_GE(told().at("quiet_s"), 1000);
  renewed_at(1, std::time(nullptr) - 40);
  EXPECT_FALSE(has(said(), "without a sign of life")) << "it is renewed every 30 s";
  renewed_at(1, std::time(nullptr) + 1000);
  EXPECT_EQ(told().at("quiet_s"), 0) << "by a clock that is ahead of this one";
  renewed_at(1, 0);
  EXPECT_TRUE(claimed_runs(results_.path(), "exp").empty());
}

}  // namespace
}  // namespace bnlab::held_runs_test
