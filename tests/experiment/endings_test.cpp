// When a run ends and which weights it leaves: the keys stop_early and select, and what they must agree with.
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecEndings : public SpecFiles {};

TEST_F(SpecEndings, SelectsWeightsAmongItsEvaluations) {
  const RunSpec run = load_one(spec(R"("eval_every": 2, "select": {})"));
  EXPECT_EQ(run.select->validation_share, 0.1);
  EXPECT_EQ(run.select->population, "saved");
  EXPECT_EQ(load_one(spec(R"("select": null)")).id, load_one(spec()).id);
  EXPECT_EQ(load_one(spec(R"("eval_every": 2, "weight_ema": 0.9, "select": {"population": "ema"})"))
                .select->population,
            "ema");
  EXPECT_EQ(
      mistakes(spec(R"("select": {"population": "ema"})")),
      (Lines{
          "spec.json: eval_every: expected above 0 beside select, which chooses among the evaluations, got 0",
          "spec.json: select.population: expected one of the populations that are evaluated, [\"saved\"], "
          "got \"ema\""}));
  EXPECT_EQ(
      mistakes(spec(R"("eval_every": 10, "select": {})")),
      Lines{"spec.json: eval_every: expected less than steps, 10, beside select, which chooses among the "
            "evaluations, got 10"});
  EXPECT_EQ(mistakes(spec(R"("eval_every": 2, "select": {"split": "test", "validation_share": 0.6})")).size(),
            2u);
}

TEST_F(SpecEndings, StopsEarlyByARuleThatCanEndIt) {
  const RunSpec run = load_one(spec(R"("stop_early": {"every": 2, "chance_after": 4, "chance_above": 0.9})"));
  EXPECT_EQ(run.stop_early->every, 2);
  EXPECT_EQ(run.stop_early->diverging_above, 2);
  EXPECT_EQ(run.stop_early->chance_after, 4);
  EXPECT_EQ(run.stop_early->chance_above, 0.9);
  EXPECT_EQ(load_one(spec(R"("stop_early": null)")).id, load_one(spec()).id);
  EXPECT_NE(run.id, load_one(spec()).id);
  EXPECT_EQ(
      mistakes(spec(R"("stop_early": {"every": 10, "chance_after": 10})")),
      (Lines{
          "spec.json: stop_early.chance_after: expected both chance_after and chance_above, or neither",
          "spec.json: stop_early.chance_after: expected more than every, 10, whose first mean is what later "
          "ones are compared with, got 10",
          "spec.json: stop_early.every: expected fewer than the 10 steps of the run, got 10",
          "spec.json: stop_early.chance_after: expected fewer than the 10 steps of the run, got 10"}));
  EXPECT_EQ(mistakes(spec(R"("average_weights_every": 2, "stop_early": {"every": 3})")),
            Lines{"spec.json: stop_early.every: expected a multiple of average_weights_every, 2, got 3"});
  EXPECT_EQ(mistakes(spec(R"("stop_early": {"diverging_above": 0.5})")),
            (Lines{"spec.json: stop_early.every: missing, expected an integer in [1, 1000000000]",
                   "spec.json: stop_early.diverging_above: expected a number in [1, 1000000], got 0.5"}));
}

}  // namespace
}  // namespace bnlab
