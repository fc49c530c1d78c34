// Contrasts of runs that differ in other keys than the strategy.
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecContrasts : public SpecFiles {
 protected:
  // A contrast of mean_iou with `sides`, on a matrix of routes and averages that move together, strategies
  // and seeds.
  static std::string contrast(const std::string& sides) {
    return spec(R"("matrix": {"seed": [0, 1], "strategy": ["fake_own", {"name": "fake_own", "momentum": 0.5}],
        "gradient_route,average_weights_every": [["reducer", null], ["rank0", null], ["reducer", 4]]},
        "contrasts": [{"metric": "mean_iou", )" +
                sides + "}]");
  }
  std::string mistake(const std::string& sides) {
    const Lines lines = mistakes(contrast(sides));
    return lines.size() == 1 ? lines[0] : std::to_string(lines.size()) + " mistakes";
  }
};

TEST_F(SpecContrasts, AreRulesThatTellTheSidesApart) {
  const Experiment experiment = load(contrast(R"("at": {"strategy.momentum": 0.1},
      "runs": {"average_weights_every": 4}, "above_runs": {"average_weights_every": null})"));
  const Contrast& contrast = experiment.contrasts.at(0);
  EXPECT_FALSE(contrast.of_strategies());
  EXPECT_EQ(contrast.rule(false), Json::parse(R"({"strategy.momentum": 0.1, "average_weights_every": 4})"));
  EXPECT_EQ(contrast.rule(true), Json::parse(R"({"strategy.momentum": 0.1, "average_weights_every": null})"));
  EXPECT_EQ(contrast.compared_keys(), Lines{"average_weights_every"});
  EXPECT_TRUE(
      mistakes(SpecContrasts::contrast(
                   R"("runs": {"strategy": {"momentum": 0.5}}, "above_runs": {"strategy.momentum": 0.1})"))
          .empty());
}

TEST_F(SpecContrasts, AreReadBesideATaskThatIsUnknown) {
  const Lines lines =
      mistakes(R"({"task": "fake_shape", "model": "fake_net", "batch_per_tower": 1, "steps": 1,
      "matrix": {"strategy": ["fake_own", "fake_pooled"]},
      "contrasts": [{"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled"}]})");
  EXPECT_EQ(lines, Lines{"spec.json: task: unknown task \"fake_shape\"; did you mean \"fake_shapes\"?"});
}

// As where "extends" is misspelt.
TEST_F(SpecContrasts, AreReadBesideATaskThatIsMissing) {
  for (const std::string metric : {"mean_iou", "log_images_per_s"}) {
    const Lines lines = mistakes(R"({"model": "fake_net", "batch_per_tower": 1, "steps": 1, "timing": 3,
        "weight_ema": "x", "matrix": {"strategy": ["fake_own", "fake_pooled"]},
        "contrasts": [{"metric": ")" +
                                 metric +
                                 R"(", "strategy": "fake_own", "above": "fake_pooled",
        "population": "ema"}]})");
    EXPECT_EQ(lines.size(), 3U);
    EXPECT_NE(std::ranges::find(lines,
                                "spec.json: task: missing, expected a task (its name, or "
                                "{\"name\": ..., its parameters})"),
              lines.end());
  }
}

TEST_F(SpecContrasts, AreReadBesideATaskWhoseNameIsNoText) {
  const Lines lines = mistakes(R"({"task": {"name": 3}, "model": "fake_net", "batch_per_tower": 1, "steps": 1,
      "matrix": {"strategy": ["fake_own", "fake_pooled"]},
      "contrasts": [{"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled"}]})");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("spec.json: task.name: expected the name of a known task, got 3"))
      << lines[0];
}

TEST_F(SpecContrasts, NameBothSidesInOneWay) {
  const std::string expected =
      "spec.json: contrasts[0]: expected strategy and above, or in their place runs and above_runs";
  EXPECT_EQ(mistake(R"("strategy": "fake_own")"), expected);
  EXPECT_EQ(mistake(R"("at": {})"), expected);
  EXPECT_EQ(mistake(R"("runs": {"average_weights_every": 4})"), expected);
  EXPECT_EQ(mistake(R"("strategy": "fake_own", "above_runs": {"average_weights_every": 4})"), expected);
  EXPECT_EQ(mistake(R"("runs": "fake_own", "above_runs": {"average_weights_every": 4})"),
            "spec.json: contrasts[0].runs: expected an object, got \"fake_own\"");
}

TEST_F(SpecContrasts, RefuseRulesThatNoPairOfRunsFits) {
  const std::string above = R"(, "above_runs": {"average_weights_every": null})";
  EXPECT_EQ(mistake(R"("runs": {"averge_weights_every": 4})" + above),
            "spec.json: contrasts[0].runs.averge_weights_every: unknown key; did you mean "
            "\"average_weights_every\"?");
  EXPECT_EQ(mistake(R"("runs": {"average_weights_every": 8})" + above),
            "spec.json: contrasts[0].runs.average_weights_every: no run has 8; there are: null, 4");
  EXPECT_EQ(mistake(R"("runs": {"gradient_route": "rank1"}, "above_runs": {"gradient_route": "reducer"})"),
            "spec.json: contrasts[0].runs.gradient_route: no run has \"rank1\"; did you mean \"rank0\"?");
  EXPECT_EQ(
      mistake(R"("runs": {"average_weights_every": null})" + above),
      "spec.json: contrasts[0].above_runs: expected other runs than those of runs, got some that are on "
      "both sides");
  EXPECT_EQ(
      mistake(R"("runs": {"average_weights_every": 4}, "above_runs": {"gradient_route": "reducer"})"),
      "spec.json: contrasts[0].above_runs: expected other runs than those of runs, got some that are on "
      "both sides");
  EXPECT_EQ(mistake(R"("at": {"gradient_route": "rank0"}, "runs": {"average_weights_every": 4})" + above),
            "spec.json: contrasts[0].runs.average_weights_every: no run has 4; there are: null");
  EXPECT_EQ(mistake(R"("at": {"average_weights_every": 4}, "runs": {"average_weights_every": 4})" + above),
            "2 mistakes");
  EXPECT_EQ(mistake(R"("runs": {"average_weights_every": "4"})" + above),
            "spec.json: contrasts[0].runs.average_weights_every: no run has the text \"4\"; write the value "
            "without quotes: 4");
  EXPECT_EQ(mistake(R"("runs": {"seed": 1}, "above_runs": {"gradient_route": "reducer"})"),
            "spec.json: contrasts[0].runs.seed: runs of one seed are compared, and no seed with another");
}

TEST_F(SpecContrasts, CountOnceWhicheverSideStandsFirst) {
  const auto twice = [](const std::string& second) {
    return spec(R"("matrix": {"strategy": ["fake_own", "fake_pooled"]}, "contrasts": [
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled"},
      {"metric": )" +
                second + "}]");
  };
  const Lines refusal{
      "spec.json: contrasts[1]: the same two sides are compared by contrasts[0]; a comparison counts once"};
  EXPECT_EQ(mistakes(twice(R"("mean_iou", "strategy": "fake_own", "above": "fake_pooled")")), refusal);
  EXPECT_EQ(mistakes(twice(R"("mean_iou", "strategy": "fake_pooled", "above": "fake_own")")), refusal);
  EXPECT_EQ(mistakes(twice(R"("pixel_accuracy", "strategy": "fake_own", "above": "fake_pooled")")), Lines());
}

TEST_F(SpecContrasts, AreOfNumbersThatThereAre) {
  const auto measured = [](const std::string& metric, const std::string& margin) {
    return spec(R"("matrix": {"strategy": ["fake_own", "fake_pooled"]}, "contrasts": [
      {"strategy": "fake_own", "above": "fake_pooled", "metric": ")" +
                metric + R"(", "equivalence_margin": )" + margin + "}]");
  };
  EXPECT_EQ(
      mistakes(measured("mean_iou", "2")),
      Lines{"spec.json: contrasts[0].equivalence_margin: expected a share below 1, 0.02 for two points, got "
            "2.0"});
  EXPECT_EQ(mistakes(measured("images_per_s", "2")), Lines());
  for (const std::string metric : {"groups", "groups.mean_iou", "groups.sky.iou"}) {
    EXPECT_EQ(
        mistakes(measured(metric, "0.02")),
        Lines{"spec.json: contrasts[0].metric: expected groups.NAME.mean_iou or groups.NAME.pixel_accuracy, "
              "got \"" +
              metric + "\""});
  }
  EXPECT_EQ(mistakes(measured("groups.sky.mean_iou", "0.02")), Lines());
}

TEST_F(SpecContrasts, RefuseSidesThatDifferInMoreThanTheyName) {
  EXPECT_EQ(
      mistakes(spec(R"("matrix": {"towers,batch_per_tower": [[4, 2], [2, 4]]}, "contrasts": [
      {"metric": "mean_iou", "runs": {"towers": 4}, "above_runs": {"towers": 2}},
      {"metric": "mean_iou", "runs": {"towers": 4, "batch_per_tower": 2},
       "above_runs": {"towers": 2, "batch_per_tower": 4}}])")),
      Lines{"spec.json: contrasts[0].above_runs: expected runs that differ from those of runs in the keys "
            "of both alone; name what else differs too: batch_per_tower"});
}

}  // namespace
}  // namespace bnlab
