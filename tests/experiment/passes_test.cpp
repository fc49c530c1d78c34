// A step of several passes: the keys accumulate, statistics_per and recompute.
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecPasses : public SpecFiles {};

TEST_F(SpecPasses, CutsTheSamplesOfAStepIntoPasses) {
  const RunSpec run = load_one(R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own",
    "towers": 3, "batch_per_tower": [4, 0, 2], "accumulate": 2, "statistics_per": "step", "recompute": "blocks",
    "steps": 1})");
  EXPECT_EQ(run.accumulate, 2);
  EXPECT_EQ(run.samples_per_tower, (std::vector<int64_t>{4, 0, 2}));
  EXPECT_EQ(run.samples_per_pass(), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_EQ(run.statistics_per, StatisticsPer::step);
  EXPECT_EQ(run.recompute, Recompute::blocks);
  EXPECT_EQ(
      mistakes(spec(R"("accumulate": 3)")),
      Lines{"spec.json: accumulate: expected a divisor of every tower's samples, got 3 for a tower of 2; "
            "change it or batch_per_tower"});
}

TEST_F(SpecPasses, RememberOncePerStepOrInEveryForwardPass) {
  const std::string naive = R"("accumulate": 2, "recompute": "naive", "statistics_per": )";
  EXPECT_EQ(mistakes(spec(naive + R"("micro_batch")")), Lines{});
  EXPECT_EQ(
      mistakes(spec(naive + R"("step")")),
      Lines{R"(spec.json: recompute: "naive" remembers in every forward pass, and statistics_per "step" )"
            "once for all of a step; change one of them"});
}

}  // namespace
}  // namespace bnlab
