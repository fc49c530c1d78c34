#include "harness/launch/progress.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

TEST(MetricsTail, ReadsOnlyCompletedLinesAndGoesOnWhereItStopped) {
  const test::Scratch scratch;
  MetricsTail tail(scratch / "metrics.jsonl");
  tail.read_on();  // the file is not there yet
  EXPECT_EQ(tail.step(), 0);
  std::ofstream out(scratch / "metrics.jsonl");
  out << R"({"kind": "start"})"
      << "\n"
      << R"({"kind": "train", "step": 10, "epoch": 0.5, "loss": 1.25})"
      << "\n"
      << R"({"kind": "train", "step": 2)" << std::flush;
  tail.read_on();
  EXPECT_EQ(tail.step(), 10);
  EXPECT_EQ(tail.epoch(), 0.5);
  EXPECT_EQ(tail.loss(), 1.25);
  out << R"(0, "loss": null})"
      << "\n"
      << R"({"kind": "eval", "step": 30})"
      << "\n"
      << std::flush;
  tail.read_on();
  EXPECT_EQ(tail.step(), 20);
  EXPECT_FALSE(tail.loss());
}

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(duration_text(21.4), "21 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

TEST(Progress, TheHeadlineIsTheFirstPopulationsMetric) {
  EXPECT_EQ(headline_text({{"headline", "mean_iou"}, {"final", {{"saved", {{"mean_iou", 0.71234}}}}}}),
            "mean_iou 0.7123");
  EXPECT_EQ(headline_text({{"headline", "mean_iou"}, {"final", {{"saved", {{"mean_iou", nullptr}}}}}}),
            "mean_iou undefined");
  EXPECT_EQ(headline_text(nullptr), "");
}

TEST(Progress, WithoutATerminalEveryRunHasItsLines) {
  const test::Scratch scratch;
  const RunSpec run = load_experiment(scratch.write_spec(test::behaves("ok"))).runs.at(0);
  testing::internal::CaptureStderr();
  {
    Progress progress(2, 2 * work_of(run), 1);
    progress.started(run, scratch / "metrics.jsonl");
    progress.finished(run, {Status::crashed, "rank 1 was ended by SIGKILL", 1, "SIGKILL", {}}, 12.3, nullptr);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("started  " + run.id + "  [0/2]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("crashed  " + run.id + "  12.3 s  [1/2, 1 failed]"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 was ended by SIGKILL"), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(Progress, TellsTheTimeLeftFromFinishedRuns) {
  const test::Scratch scratch;
  const RunSpec run = load_experiment(scratch.write_spec(test::behaves("ok"))).runs.at(0);
  testing::internal::CaptureStderr();
  {
    Progress progress(5, 5 * work_of(run), 2);
    progress.started(run, scratch / "metrics.jsonl");
    progress.finished(run, {}, 10, nullptr);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("20 s left"), std::string::npos) << text;  // 4 runs of 10 s, two at a time
}

}  // namespace
}  // namespace bnlab
