// Runs that are done on another placement than the one they would have today.
#include <gtest/gtest.h>

#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab::done_elsewhere_test {
namespace {

using test::behaves;
using test::run;
using test::Scratch;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kTwoSeeds = R"(, "matrix": {"seed": [0, 1]})";

class DoneElsewhere : public ::testing::Test {
 protected:
  LaunchRequest unnamed() const {
    LaunchRequest request = scratch_.options(0);
    request.device.reset();
    return request;
  }
  // What is said on standard error meanwhile is kept in said_.
  LaunchSummary run_and_listen(const std::string& spec, const LaunchRequest& request) {
    testing::internal::CaptureStderr();
    const LaunchSummary summary = run(spec, request);
    said_ = testing::internal::GetCapturedStderr();
    return summary;
  }

  const Scratch scratch_;
  std::string said_;
};

TEST_F(DoneElsewhere, CountsWhereNoPlacementIsNamed) {
  const auto spec = scratch_.write_spec(behaves("ok"), kTwoSeeds);
  EXPECT_EQ(run(spec, scratch_.options(2)).finished, 2);
  std::filesystem::remove(scratch_ / (std::string("results/fake/") + kPlacementFile));
  const LaunchSummary again = run_and_listen(spec, unnamed());
  EXPECT_EQ(again.finished, 0) << said_;
  EXPECT_EQ(again.skipped, 2);
  EXPECT_EQ(again.done_on, (std::map<std::string, int>{{"2x1-cpu", 2}}));
}

TEST_F(DoneElsewhere, IsToldWithTheWordThatCountsItWhereAnotherPlacementIsNamed) {
  const auto spec = scratch_.write_spec(behaves("ok"), kTwoSeeds);
  run(spec, scratch_.options(2));
  EXPECT_EQ(run_and_listen(spec, scratch_.options(1)).finished, 2);
  EXPECT_TRUE(has(said_,
                  "2 of the runs to start are done on other placements (2x1-cpu): without --ranks and "
                  "--device they count"))
      << said_;
  EXPECT_EQ(run_and_listen(spec, scratch_.options(1)).skipped, 2);
  EXPECT_FALSE(has(said_, "other placements")) << said_;
}

TEST_F(DoneElsewhere, CountsNeitherWhatFailedThereNorWhatTheSpecPlacesElsewhere) {
  const auto refused = scratch_.write_spec(behaves("refuse"));
  run(refused, scratch_.options(2));
  LaunchRequest one = scratch_.options(1);
  EXPECT_EQ(run(refused, one).failed, 1);
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec, scratch_.options(2));
  const auto placed = scratch_.write_spec(behaves("ok"), R"(, "placement": {"ranks": 1})");
  EXPECT_EQ(run_and_listen(placed, unnamed()).finished, 1) << said_;
}

TEST_F(DoneElsewhere, AStaleRunDoesNotStandForOneThatIsUpToDate) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec, scratch_.options(1));
  run(spec, scratch_.options(2));
  const auto records = scratch_.records();  // 1x2-cpu, 2x1-cpu
  ASSERT_EQ(records.size(), 2u);
  Json old = records[1].json();
  old["code"]["numerics"]["base"] = "an older one";
  write_json(records[1].file(), old);
  LaunchRequest request = unnamed();  // 2 ranks, as last time
  request.redo = {"stale"};
  const LaunchSummary again = run_and_listen(spec, request);
  EXPECT_EQ(again.done_on, (std::map<std::string, int>{{"1x2-cpu", 1}})) << said_;
  EXPECT_TRUE(again.stale.empty());
}

TEST_F(DoneElsewhere, AFolderRemembersWhereItsRunsWereStarted) {
  const auto spec = scratch_.write_spec(behaves("ok"), kTwoSeeds);
  LaunchRequest first = scratch_.options(2);
  first.only = {"seed=0"};
  run(spec, first);
  EXPECT_EQ(run_and_listen(spec, unnamed()).finished, 1);
  EXPECT_TRUE(
      has(said_, "ranks: 2, as when runs of this folder were started last; --ranks chooses otherwise"))
      << said_;
  for (const Record& record : scratch_.records()) EXPECT_EQ(record.placement(), "2x1-cpu");
  EXPECT_EQ(scratch_.records().size(), 2u);
}

TEST_F(DoneElsewhere, WhatACallLeavesUnsaidStaysRemembered) {
  const auto spec = scratch_.write_spec(behaves("ok"), kTwoSeeds);
  LaunchRequest first = scratch_.options(2);
  first.only = {"seed=0"};
  run(spec, first);
  LaunchRequest second = unnamed();
  second.exchange = Exchange::sockets;
  second.only = {"seed=1"};
  run(spec, second);
  EXPECT_EQ(read_json(scratch_ / (std::string("results/fake/") + kPlacementFile)),
            (Json{{"ranks", 2}, {"device", "cpu"}, {"exchange", "sockets"}}));
}

TEST_F(DoneElsewhere, APlacementThatCannotBeReadIsNone) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec, scratch_.options(1));
  const std::string file = scratch_ / (std::string("results/fake/") + kPlacementFile);
  ASSERT_EQ(read_json(file), (Json{{"ranks", 1}, {"device", "cpu"}, {"exchange", nullptr}}));
  LaunchRequest all = unnamed();
  all.redo = {"all"};
  write_json(file, Json{{"ranks", -3}, {"device", "abacus"}, {"exchange", 7}});
  EXPECT_EQ(run(spec, all).finished, 1);
  write_json(file, Json::array({1, 2}));
  EXPECT_EQ(run(spec, all).finished, 1);
  EXPECT_EQ(scratch_.records().size(), 1u);
}

}  // namespace
}  // namespace bnlab::done_elsewhere_test
