#include "harness/launch/judge.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

RankEnd reports(Status status, int order = 1, bool lost_contact = false) {
  RankEnd rank;
  rank.report.emplace();
  rank.report->status = status;
  rank.report->message = status == Status::ok ? "" : "message of " + name(status);
  rank.report->lost_contact = lost_contact;
  rank.order = order;
  return rank;
}

RankEnd dies(int signal, int code, int order) {
  RankEnd rank;
  rank.end = {code, signal};
  rank.order = order;
  return rank;
}

RankEnd stopped() {
  RankEnd rank = dies(SIGKILL, 0, 9);
  rank.stopped = true;
  return rank;
}

TEST(Judge, AllRanksWellIsOk) {
  const Outcome outcome = judge({reports(Status::ok), reports(Status::ok)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::ok);
  EXPECT_FALSE(outcome.rank);
  EXPECT_EQ(outcome.message, "");
}

TEST(Judge, BlamesTheKilledRankAndNotTheOneThatLostContact) {
  const Outcome outcome =
      judge({reports(Status::crashed, 1, true), dies(SIGKILL, 0, 2)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::interrupted) << "no program kills itself";
  EXPECT_EQ(judge({dies(SIGSEGV, 0, 2)}, Stop::none, 0, false).status, Status::crashed);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.signal, "SIGKILL");
}

TEST(Judge, BlamesTheFirstOfSeveralDeadRanks) {
  const Outcome outcome = judge({dies(SIGABRT, 0, 5), dies(SIGSEGV, 0, 4)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.signal, "SIGSEGV");
}

TEST(Judge, ASignalComesBeforeAnExitSeenAtTheSameTime) {
  const Outcome outcome = judge({dies(0, 1, 4), dies(SIGSEGV, 0, 4)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.rank, 1);
}

TEST(Judge, AnExitWithoutAReportIsACrash) {
  const Outcome outcome = judge({dies(0, 7, 1)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::crashed);
  EXPECT_EQ(outcome.signal, "");
  EXPECT_NE(outcome.message.find("exit status 7"), std::string::npos);
}

TEST(Judge, AReportDoesNotExcuseADeathAfterIt) {
  RankEnd rank = reports(Status::ok);
  rank.end.signal = SIGSEGV;
  EXPECT_EQ(judge({rank}, Stop::none, 0, false).status, Status::crashed);
}

TEST(Judge, SigkillWithTheKernelsEvidenceIsOutOfMemory) {
  EXPECT_EQ(judge({dies(SIGKILL, 0, 1)}, Stop::none, 0, true).status, Status::oom);
  EXPECT_EQ(judge({dies(SIGSEGV, 0, 1)}, Stop::none, 0, true).status, Status::crashed);
}

TEST(Judge, ARefusalIsItsOwnOutcomeWhateverTheOthersLost) {
  const Outcome outcome =
      judge({reports(Status::crashed, 1, true), reports(Status::error, 2)}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::error);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.message, "message of error");
}

TEST(Judge, AResultStandsWhateverBreaksBehindIt) {
  const auto judged = [](const RankEnd& first, const RankEnd& second) {
    return judge({first, second}, Stop::none, 0, false).status;
  };
  const RankEnd crashed = reports(Status::crashed, 1, true);
  for (const Status status : {Status::ok, Status::diverged}) {
    EXPECT_EQ(judged(reports(status, 1, true), reports(status, 2, true)), status);
    EXPECT_EQ(judged(reports(status), crashed), status);
  }
  EXPECT_EQ(judged(crashed, reports(Status::ok)), Status::crashed) << "rank 0 has no result";
}

TEST(Judge, ASilentRankIsATimeoutThatNamesIt) {
  const Outcome outcome =
      judge({reports(Status::crashed, 1, true), stopped(), stopped()}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::timeout);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_NE(outcome.message.find("rank 1, rank 2 did not answer"), std::string::npos) << outcome.message;
}

TEST(Judge, AFailureOfItsOwnIsNotTheFaultOfRanksThatWaited) {
  const Outcome outcome = judge({reports(Status::crashed), stopped()}, Stop::none, 0, false);
  EXPECT_EQ(outcome.status, Status::crashed);
  EXPECT_EQ(outcome.rank, 0);
  EXPECT_EQ(outcome.message, "message of crashed (no report from rank 1)");
}

TEST(Judge, TheRunsTimeLimitIsATimeout) {
  const Outcome outcome = judge({stopped(), stopped()}, Stop::timeout, 2.5, false);
  EXPECT_EQ(outcome.status, Status::timeout);
  EXPECT_NE(outcome.message.find("2.5 s"), std::string::npos);
}

TEST(Judge, AnInterruptIsNobodysFault) {
  EXPECT_EQ(judge({stopped(), stopped()}, Stop::interrupt, 0, false).status, Status::interrupted);
}

TEST(Judge, WhatFinishedBeforeTheInterruptStays) {
  EXPECT_EQ(judge({reports(Status::ok), reports(Status::ok)}, Stop::interrupt, 0, false).status, Status::ok);
}

TEST(Judge, AFullDiskIsNoVerdict) {
  const auto refused = [](const std::string& message, const std::vector<std::string>& log) {
    RunSpec run;
    run.id = "sync-1";
    try {
      refuse_full_disk(run, {Status::error, message, 0, "", log});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::environment);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string cure = "; free some disk, or name another folder with --results, and start it again";
  EXPECT_EQ(refused("cannot write a: No space left on device", {"one", "two"}),
            "sync-1: cannot write a: No space left on device" + cure);
  EXPECT_EQ(refused("ended without a report", {"one", "cannot write b: Disk quota exceeded"}),
            "sync-1: cannot write b: Disk quota exceeded" + cure);
  EXPECT_EQ(refused("cannot write a: Input/output error", {"No space left on device", "two"}), "");
  EXPECT_EQ(refused("", {}), "");
}

TEST(LogTail, HoldsTheLastLines) {
  const test::Scratch scratch;
  std::ofstream(scratch / "log") << "one\ntwo\nthree\n";
  EXPECT_EQ(log_tail(scratch / "log", 2), (std::vector<std::string>{"two", "three"}));
  EXPECT_TRUE(log_tail(scratch / "none").empty());
}

}  // namespace
}  // namespace bnlab
