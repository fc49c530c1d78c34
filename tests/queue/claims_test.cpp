// Claims of this process and of children that die, stop or publish.
#include "harness/queue/claims.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "harness/queue/active_processes.hpp"
#include "harness/store/attempts.hpp"
#include "harness/support/error.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr const char* kResult =
    R"({"schema_version": 1, "kind": "bnlab.run", "experiment": "e", "run_id": "run",
  "strategy_label": "sync", "placement": {"name": "2x1-cpu", "device": "cpu", "ranks": 2}, "spec": {"seed": 0},
  "wall_time_s": 1, "outcome": {"status": "ok"}})";

class Claims : public ::testing::Test {
 protected:
  std::optional<Claim> take(seconds steal_after = seconds(900)) {
    const ActiveProcesses active(folder_.path());  // anew, as if another process took it
    return Claim::take(
        run_, active, steal_after, [](const fs::path& folder) { return fs::exists(folder / "record.json"); },
        holder_);
  }

  static void write_record(const fs::path& folder) { std::ofstream(folder / "record.json") << "{}"; }

  // What is left beside the run's folder.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_.parent_path()))
      if (entry.path() != run_) names.push_back(entry.path().filename().string());
    return names;
  }

  // A child that takes the claim, leaves this file in its folder and is killed.
  void die_with_the_claim(const char* file = "metrics.jsonl") {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto claim = take();
      if (claim) std::ofstream(claim->folder() / file) << "half";
      ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }

  void let_grow_old(int number) const {
    const timespec long_ago[2] = {{1, 0}, {1, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, claim_file(run_, number).c_str(), long_ago, 0), 0);
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run" / "2x1-cpu";
  std::string holder_;
};

TEST_F(Claims, TheWinnerWorksAsideAndPublishesAtOnce) {
  auto claim = take();
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->attempts(), 1);
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_FALSE(take());
  EXPECT_NE(holder_.find("process " + std::to_string(::getpid())), std::string::npos) << holder_;
  write_record(claim->folder());
  EXPECT_TRUE(claim->publish(false));
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  EXPECT_TRUE(left().empty());
  EXPECT_FALSE(take()) << "the run is finished";
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, TheClaimOfADeadProcessIsTakenOverAtOnceWithItsFiles) {
  die_with_the_claim();
  const auto claim = take();
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->attempts(), 1) << "a launcher that was killed says nothing of the run";
  EXPECT_TRUE(fs::exists(claim->folder() / "metrics.jsonl"));
}

TEST_F(Claims, ADamagedClaimIsNobodysAndNamed) {
  for (const char* text : {R"({"pid": "x"})", R"({"host": 5})", R"({"since": {}})", R"({"job": 5})",
                           R"({"pid": 1e99})", R"({"machine": null})", R"({"renews_every_s": "x"})", "[]"}) {
    fs::create_directories(run_.parent_path());
    std::ofstream(claim_file(run_, 1)) << text;
    auto claim = take();
    ASSERT_TRUE(claim) << text;
    EXPECT_NE(claim->damage().find(claim_file(run_, 1).string()), std::string::npos) << claim->damage();
    claim->drop();
    EXPECT_TRUE(left().empty()) << text;
  }
}

TEST_F(Claims, AFileThatIsNoOrdinaryOneIsNobodysClaim) {
  fs::create_directories(run_.parent_path());
  ASSERT_EQ(::mkfifo(claim_file(run_, 1).c_str(), 0666), 0);
  EXPECT_TRUE(take());
}

TEST_F(Claims, ANumberThatNoAttemptHasIsNoClaim) {
  fs::create_directories(run_.parent_path());
  for (const char* number : {"2147483647", "99999999999", "-5", "x", "1x", ""})
    std::ofstream(run_.parent_path() / (".2x1-cpu.claim." + std::string(number))) << "{}";
  auto claim = take();
  ASSERT_TRUE(claim);
  EXPECT_TRUE(claim->owns());
  std::ofstream(claim_file(run_, kLastAttempt)) << "[]";
  EXPECT_THROW(take(), Error);
}

TEST_F(Claims, NoClaimSaysHowLongItStandsWithoutALife) {
  fs::create_directories(run_.parent_path());
  std::ofstream(claim_file(run_, 1)) << R"({"machine": "another", "pid": 1, "renews_every_s": 1e300})";
  EXPECT_FALSE(take());
  let_grow_old(1);
  EXPECT_TRUE(take());
}

TEST_F(Claims, AClaimThatIsNotRenewedIsTakenOverAndItsHolderPublishesNothing) {
  auto slow = take();
  let_grow_old(1);
  auto thief = take();
  ASSERT_TRUE(thief);
  EXPECT_FALSE(slow->owns());
  EXPECT_FALSE(slow->publish(false));
  write_record(thief->folder());
  EXPECT_TRUE(thief->publish(false));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, WhoWakesUpAfterTheEndLeavesNothing) {
  auto slow = take();
  let_grow_old(1);
  auto thief = take();
  write_record(thief->folder());
  EXPECT_TRUE(thief->publish(false));
  fs::create_directories(slow->folder());  // as if it had only now begun
  EXPECT_FALSE(slow->publish(false));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, ARecordWhoseProcessDiedBeforeTheLastStepIsPublished) {
  die_with_the_claim("record.json");
  EXPECT_FALSE(take());
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, AttemptsGoOnCountingWhereTheyAreKept) {
  for (int attempt = 1; attempt <= 3; ++attempt) {
    auto claim = take();
    ASSERT_TRUE(claim);
    EXPECT_EQ(claim->attempts(), attempt);
    EXPECT_TRUE(claim->publish(/*keep_counting=*/true));
  }
  auto last = take();
  std::ofstream(last->folder() / "checkpoint") << "of an attempt before";
  last->withdraw();
  last = take();
  EXPECT_EQ(last->attempts(), 4);
  EXPECT_TRUE(fs::exists(last->folder() / "checkpoint"));
}

TEST_F(Claims, ACheckpointForgetsTheAttemptsBeforeIt) {
  take()->publish(/*keep_counting=*/true);
  take()->publish(/*keep_counting=*/true);
  const auto third = take();
  EXPECT_EQ(third->attempts(), 3);
  set_attempts(third->folder(), 1);
  EXPECT_EQ(third->attempts(), 1);
  EXPECT_TRUE(third->owns());
  let_grow_old(3);
  take()->publish(/*keep_counting=*/true);
  set_attempts(third->folder(), 1);  // as the ranks of a launcher that was stopped do
  EXPECT_EQ(attempts_without_end(run_), 1);
}

TEST_F(Claims, ALaterClaimWithTheSameNumberIsNotTheOldOne) {
  auto slow = take();
  let_grow_old(1);
  take()->publish(/*keep_counting=*/false);  // an interrupted run: its attempts are forgotten
  die_with_the_claim();
  EXPECT_TRUE(fs::exists(claim_file(run_, 1)));
  EXPECT_FALSE(slow->owns());
  slow->withdraw();
  EXPECT_TRUE(fs::exists(claim_file(run_, 1)));
  EXPECT_FALSE(slow->publish(false));
  EXPECT_TRUE(take());
}

TEST_F(Claims, ARunThatIsFinishedBetweenTwoLooksIsLeftInItsPlace) {
  fs::create_directories(run_);
  write_record(run_);
  const auto look = [&](const fs::path& folder) {
    return folder != run_ && fs::exists(folder / "record.json");
  };
  const ActiveProcesses active(folder_.path());
  EXPECT_FALSE(Claim::take(run_, active, seconds(900), look, holder_));
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, FoldersOfLaterAttemptsAreNotTaken) {
  const fs::path later = run_.parent_path() / ".2x1-cpu.attempt.7.another";
  fs::create_directories(later);
  EXPECT_TRUE(take());
  EXPECT_TRUE(fs::exists(later));
}

TEST_F(Claims, WhatLiesInTheRunsFolderIsNotInTheWay) {
  die_with_the_claim();
  fs::create_directories(run_);
  std::ofstream(run_ / "left") << "by an older program";
  auto claim = take();
  EXPECT_TRUE(fs::exists(claim->folder() / "metrics.jsonl"));
  write_record(claim->folder());
  EXPECT_TRUE(claim->publish(false));
  EXPECT_FALSE(fs::exists(run_ / "left"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, WhatComesIntoTheRunsFolderMeanwhileIsNotInTheWayEither) {
  auto claim = take();
  write_record(claim->folder());
  fs::create_directories(run_);
  std::ofstream(run_ / "left") << "by somebody who copied results here";
  EXPECT_TRUE(claim->publish(false));
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  EXPECT_FALSE(fs::exists(run_ / "left"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, AResultStaysInItsPlaceWhileTheRunIsMadeAgain) {
  fs::create_directories(run_);
  std::ofstream(run_ / "record.json") << kResult;
  const auto again = [&] {
    const ActiveProcesses active(folder_.path());
    return Claim::take(run_, active, seconds(900), [](const fs::path&) { return false; }, holder_);
  };
  auto claim = again();
  ASSERT_TRUE(claim);
  EXPECT_TRUE(claim->made_again());
  EXPECT_TRUE(fs::is_empty(claim->folder()));
  std::ofstream(claim->folder() / "metrics.jsonl") << "of an attempt that made no checkpoint";
  claim->withdraw();
  EXPECT_TRUE(left().empty());
  claim = again();
  fs::create_directories(claim->folder() / "checkpoints");
  claim->withdraw();
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  claim = again();
  EXPECT_TRUE(fs::exists(claim->folder() / "checkpoints"));
  claim->withdraw();
  for (const char* number : {"1", "3"}) {  // numbers begin anew where no claim is left
    const fs::path of_another = run_.parent_path() / (std::string(".2x1-cpu.attempt.") + number + ".another");
    fs::rename(claim->folder(), of_another);
    claim = again();
    EXPECT_TRUE(fs::exists(claim->folder() / "checkpoints")) << number;
    EXPECT_FALSE(fs::exists(of_another)) << number;
    if (number[0] == '1') claim->withdraw();
  }
  claim->drop();
  EXPECT_TRUE(fs::exists(run_ / "record.json"));
  EXPECT_TRUE(left().empty());
  claim = again();
  std::ofstream(claim->folder() / "record.json") << "the new one";
  EXPECT_TRUE(claim->publish(false));
  std::ifstream in(run_ / "record.json");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "the new one");
  EXPECT_TRUE(left().empty());
}

TEST_F(Claims, ARenewedClaimStays) {
  auto claim = take(seconds(4));
  EXPECT_TRUE(claim->beat());
  EXPECT_FALSE(take(seconds(4)));
}

TEST_F(Claims, NothingIsDoneBehindALink) {
  fs::create_directories(folder_.path() / "elsewhere");
  fs::create_directories(run_.parent_path());
  fs::create_directory_symlink(folder_.path() / "elsewhere", run_);
  EXPECT_THROW(take(), Error);
}

TEST_F(Claims, ProcessesOfThisMachineAreCountedWhileTheyLive) {
  const ActiveProcesses active(folder_.path());
  EXPECT_EQ(active.others(), 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const ActiveProcesses other(folder_.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(active.others(), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(active.others(), 0);
}

TEST_F(Claims, TheLastProcessLeavesNothingBehind) {
  {
    const ActiveProcesses active(folder_.path());
    EXPECT_FALSE(fs::is_empty(folder_.path()));
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

}  // namespace
}  // namespace bnlab
