#include "harness/launch/expected_time.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

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
