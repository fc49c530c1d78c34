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
    progress.started(run, scratch / "metrics.jsonl");
    progress.finished(run, {}, 4.5, {{"resumed_at_steps", {20, 60}}});
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("started  " + run.id + "  [0/2]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("crashed  " + run.id + "  12.3 s  [1/2, 1 failed]"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 was ended by SIGKILL"), std::string::npos) << text;
  EXPECT_NE(text.find(run.id + "  went on from step 60  4.5 s"), std::string::npos) << text;
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

Record finished(const std::string& strategy, const std::string& placement, double seconds, double images,
                const Json& epochs = nullptr) {
  return {{{"kind", "bnlab.run"},
           {"schema_version", kRecordSchemaVersion},
           {"experiment", "fake"},
           {"run_id", "run"},
           {"outcome", {{"status", "ok"}}},
           {"strategy_label", strategy},
           {"placement", {{"name", placement}, {"device", "cpu"}, {"ranks", 1}}},
           {"spec", {{"seed", 0}}},
           {"wall_time_s", seconds},
           {"result", {{"images", images}, {"epochs", epochs}}}},
          "record.json"};
}

// 10 steps of 8 images on one rank.
PlacedRun asked(const std::string& strategy, int64_t towers = 4) {
  PlacedRun run;
  run.spec.strategy = {{"name", strategy}};
  run.spec.samples_per_tower.assign(static_cast<size_t>(towers), 8 / towers);
  run.spec.steps = 10;
  run.placement.ranks = 1;
  run.placement.towers_per_rank = towers;
  return run;
}

TEST(ExpectedTime, IsThatPerImageOfTheFinishedRunsMostAlike) {
  const ExpectedTime time({finished("sync", "1x4-cpu", 30, 100), finished("sync", "1x4-cpu", 10, 100),
                           finished("sync", "2x2-cpu", 1, 100), finished("per_tower", "1x4-cpu", 5, 200)});
  EXPECT_DOUBLE_EQ(time.seconds(asked("sync")).value(), 80 * 40. / 200);
  EXPECT_DOUBLE_EQ(time.seconds(asked("group_norm")).value(), 80 * 45. / 400) << "of its placement";
  EXPECT_DOUBLE_EQ(time.seconds(asked("sync", 2)).value(), 80 * 46. / 500) << "of any";
}

TEST(ExpectedTime, OfEpochsIsThatOfRunsThatCountThem) {
  const ExpectedTime time({finished("sync", "1x4-cpu", 30, 100), finished("per_tower", "1x4-cpu", 6, 10, 2)});
  PlacedRun run = asked("sync");
  run.spec.epochs = 5;
  EXPECT_DOUBLE_EQ(time.seconds(run).value(), 5 * 36. / 2) << "no run of the strategy counted epochs";
}

TEST(ExpectedTime, IsUnknownBeforeARunHasFinished) {
  EXPECT_FALSE(ExpectedTime({}).seconds(asked("sync")));
}

}  // namespace
}  // namespace bnlab
