// Expansion of a matrix, exclusion of cells, contrasts.
#include "harness/experiment/timing.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecMatrix : public SpecFiles {
 protected:
  // "seed towers x batch label" of every run, in order.
  Lines cells(const std::string& text) const {
    Lines lines;
    for (const auto& run : load(text).runs) {
      lines.push_back(std::to_string(run.seed) + " " + std::to_string(run.towers()) + "x" +
                      std::to_string(run.samples_per_tower[0]) + " " + label(run.strategy));
    }
    return lines;
  }
};

TEST_F(SpecMatrix, ASpecWithoutMatrixIsOneRun) {
  const Experiment experiment = load(spec());
  EXPECT_EQ(experiment.name, "spec");
  EXPECT_EQ(experiment.runs.size(), 1u);
  EXPECT_TRUE(experiment.axes.empty());
}

TEST_F(SpecMatrix, SeedsAreOutermostAndStrategiesInnermost) {
  EXPECT_EQ(
      cells(spec(
          R"("matrix": {"strategy": ["fake_own", "fake_pooled"], "towers,batch_per_tower": [[4, 1], [2, 2]],
                                     "seed": [0, 1]})")),
      (Lines{"0 4x1 fake_own", "0 4x1 fake_pooled", "0 2x2 fake_own", "0 2x2 fake_pooled",  //
             "1 4x1 fake_own", "1 4x1 fake_pooled", "1 2x2 fake_own", "1 2x2 fake_pooled"}));
}

TEST_F(SpecMatrix, RunsThatAreTimedTogetherShareTheWorldOfTheFirst) {
  const auto matrix = [](const std::string& strategies) {
    return spec(R"("timing": {"against": {"strategy": "fake_own"}, "together": ["strategy", "optimizer.lr"]},
      "matrix": {"seed": [0, 1], "placement.ranks": [1, 2], "strategy,optimizer.lr": )" +
                strategies + "}");
  };
  const auto runs =
      load(matrix(
               R"([["fake_own", 0.1], ["fake_pooled", 0.2], [{"name": "fake_own", "momentum": 0.5}, 0.1]])"))
          .runs;
  ASSERT_EQ(runs.size(), 12U);
  for (size_t first = 0; first < runs.size(); first += 3) {
    const std::vector<RunSpec> others = timed_with(runs[first]);
    ASSERT_EQ(others.size(), 2U) << first;
    for (size_t i = 0; i < 2; ++i) {
      const RunSpec& other = runs[first + 1 + i];
      EXPECT_EQ(others[i].id, other.id);
      EXPECT_EQ(others[i].resolved, other.resolved);
      EXPECT_FALSE(other.timing->with) << "it is timed in the first one's world";
      EXPECT_TRUE(timed_with(other).empty());
    }
  }
  const auto fewer = load(matrix(R"([["fake_own", 0.1], ["fake_pooled", 0.2]])")).runs;
  EXPECT_NE(fewer[0].id, runs[0].id) << "it has the times of fewer runs";
  EXPECT_EQ(fewer[1].id, runs[1].id);
  const auto apart = load(spec(R"("timing": {"against": {"strategy": "fake_own"}},
                                   "matrix": {"strategy": ["fake_own", "fake_pooled"]})"))
                         .runs;
  for (const RunSpec& run : apart) EXPECT_EQ(run.timing->with, std::vector<Json>());
  EXPECT_EQ(
      mistakes(spec(R"("timing": {"against": {"strategy": "fake_own"}, "together": ["seed", "stratgy"]})")),
      (Lines{"spec.json: timing.together: expected keys that ranks of one placement may differ in, got "
             "\"seed\"",
             "spec.json: timing.together: \"stratgy\": unknown key; did you mean \"strategy\"?"}));
}

TEST_F(SpecMatrix, OtherAxesKeepTheOrderOfTheFile) {
  EXPECT_EQ(cells(spec(R"("matrix": {"batch_per_tower": [1, 2], "towers": [2, 1]})")),
            (Lines{"0 2x1 fake_pooled", "0 1x1 fake_pooled", "0 2x2 fake_pooled", "0 1x2 fake_pooled"}));
  EXPECT_EQ(load(spec(R"("matrix": {"strategy": ["fake_own"], "seed": [0]})")).axes,
            (Lines{"strategy", "seed"}));
}

TEST_F(SpecMatrix, AValueReplacesTheBasesWhole) {
  EXPECT_EQ(label(load_one(R"({"task": "fake_shapes", "model": "fake_net", "batch_per_tower": 1, "steps": 1,
                               "strategy": {"name": "fake_pooled", "gradient": "stopped"},
                               "matrix": {"strategy": [{"name": "fake_pooled", "momentum": 0.5}]}})")
                      .strategy),
            "fake_pooled(momentum=0.5)");
}

TEST_F(SpecMatrix, DottedAxesSetPartsAfterTheWhole) {
  EXPECT_EQ(
      cells(spec(R"("matrix": {"strategy.momentum": [0.5, null], "strategy": ["fake_own", "fake_pooled"]})")),
      (Lines{"0 4x2 fake_own(momentum=0.5)", "0 4x2 fake_pooled(momentum=0.5)",
             "0 4x2 fake_own(momentum=null)", "0 4x2 fake_pooled(momentum=null)"}));
  EXPECT_EQ(load_one(spec(R"("matrix": {"optimizer.lr": [0.3]})")).optimizer["lr"], 0.3);
}

TEST_F(SpecMatrix, MistakesOfValuesLieInTheAxis) {
  EXPECT_EQ(
      mistakes(spec(R"("matrix": {"seed": [0, 1, 2], "strategy": ["fake_own", "fake_poled",
      {"name": "fake_pooled", "momentum": 1.5}], "towers,batch_per_tower": [[2, [1, "1"]], [3, [1, 2]]],
      "optimizer.lr": [0.1, "big"]})")),
      (Lines{
          "spec.json: matrix.towers,batch_per_tower[0][1][1]: expected an integer in [0, 1000000], got \"1\"",
          "spec.json: matrix.strategy[1]: unknown strategy \"fake_poled\"; did you mean \"fake_pooled\"?",
          "spec.json: matrix.strategy[2].momentum: expected a number in (0, 1] or null, got 1.5",
          "spec.json: matrix.optimizer.lr[1]: expected a number > 0, got \"big\"",
          "spec.json: matrix.towers,batch_per_tower[1][1]: expected 3 entries, one per tower, got 2"}));
}

TEST_F(SpecMatrix, WhatDoesNotFitARunLiesInTheAxisOfTheOption) {
  EXPECT_EQ(mistakes(spec(R"("matrix": {"seed": [0, 1], "towers": [4, 6], "strategy": ["fake_own",
                                {"name": "fake_pooled", "group_size": 3}, {"name": "fake_groups", "groups": 5}]})")),
            (Lines{"spec.json: matrix.strategy[1].group_size: does not divide the 4 towers",
                   "spec.json: matrix.strategy[2].groups: does not divide 16 channels"}));
  EXPECT_EQ(mistakes(spec(R"("matrix": {"towers": [4, 6], "strategy": ["fake_own",
                                {"name": "fake_pooled", "group_size": 3}]},
                             "exclude": [{"strategy": "fake_pooled", "towers": 4}])")),
            Lines{});
}

TEST_F(SpecMatrix, AParameterThatAStrategyLacksIsAMistake) {
  EXPECT_EQ(
      mistakes(spec(R"("matrix": {"strategy": ["fake_own", "fake_groups"], "strategy.momentum": [0.5]})")),
      Lines{"spec.json: matrix.strategy.momentum[0]: unknown key of strategy \"fake_groups\"; known: name, "
            "groups, affine"});
}

TEST_F(SpecMatrix, AnswersUnknownAxes) {
  EXPECT_EQ(
      mistakes(spec(
          R"("matrix": {"sed": [1], "lr": [1], "optimizer.lrr": [1], "towers.x": [1], "strategy.zzz": [1],
                                        "placement.rank": [1], "question": ["a"]})")),
      (Lines{"spec.json: matrix.sed: unknown key; did you mean \"seed\"?",
             "spec.json: matrix.lr: unknown key; did you mean \"optimizer.lr\"?",
             "spec.json: matrix.optimizer.lrr: unknown key; did you mean \"optimizer.lr\"?",
             "spec.json: matrix.towers.x: unknown key: towers holds no keys",
             "spec.json: matrix.strategy.zzz: unknown key; known: strategy.name, strategy.virtual_batch, "
             "strategy.groups, strategy.affine, strategy.momentum, strategy.gradient, strategy.group_size, "
             "strategy.base",
             "spec.json: matrix.placement.rank: unknown key; did you mean \"placement.ranks\"?",
             "spec.json: matrix.question: unknown key; known: task, model, strategy, towers, "
             "batch_per_tower, accumulate, statistics_per, recompute, optimizer, steps, epochs, seed, "
             "precision, loss_scaling, tf32, deterministic, cuda_graph, memory_format, loss_mean, "
             "eval_every, log_every, "
             "checkpoint_every, populations, precise_batches, evaluation, shards, weight_ema, "
             "gradient_route, average_weights_every, init_from, select, stop_early, warmup_steps, timing, "
             "data_workers, timeout_s, collective_timeout_s, placement"}));
  std::string deep = "strategy";
  for (int i = 0; i < 100; ++i) deep += ".base";
  EXPECT_EQ(mistakes(spec("\"matrix\": {\"" + deep + "\": [1]}")).size(), 1u);
}

TEST_F(SpecMatrix, RefusesAxesThatAreNoAxes) {
  EXPECT_EQ(mistakes(spec(R"("matrix": {"seed": [], "towers": 4, "batch_per_tower,steps": [[1, 2], [1], 3],
                                        "precision,precision": [["float32", "float64"]]})")),
            (Lines{"spec.json: matrix.seed: expected a list of values that is not empty, got []",
                   "spec.json: matrix.towers: expected a list of values that is not empty, got 4",
                   "spec.json: matrix.batch_per_tower,steps[1]: expected a list of 2 values, one for each "
                   "key of the axis, got [1]",
                   "spec.json: matrix.batch_per_tower,steps[2]: expected a list of 2 values, one for each "
                   "key of the axis, got 3",
                   "spec.json: matrix.precision,precision: the key \"precision\" is set twice"}));
  EXPECT_EQ(
      mistakes(
          R"({"task": "fake_shapes", "model": "fake_net", "batch_per_tower": 1, "steps": 1, "matrix": {"strategy": []}})"),
      Lines{"spec.json: matrix.strategy: expected a list of values that is not empty, got []"});
  EXPECT_EQ(mistakes(spec(R"("matrix": [])")), Lines{"spec.json: matrix: expected an object, got []"});
}

TEST_F(SpecMatrix, ChecksTheValuesThatAnAxisReplaces) {
  EXPECT_EQ(
      mistakes(spec(
          R"("seed": "0", "optimizer": {"name": "sgd", "lr": -1}, "matrix": {"seed": [0, 1], "optimizer.lr": [0.1]})")),
      (Lines{"spec.json: seed: expected an integer in [0, 9007199254740992], got \"0\"",
             "spec.json: optimizer.lr: expected a number > 0, got -1"}));
}

TEST_F(SpecMatrix, APlacementIsNoOtherRun) {
  const Experiment experiment = load(spec(R"("matrix": {"placement.ranks": [1, 2, 4]})"));
  ASSERT_EQ(experiment.runs.size(), 3u);
  EXPECT_EQ(experiment.runs[0].id, experiment.runs[2].id);
  EXPECT_EQ(experiment.runs[2].ranks, 4);
  EXPECT_EQ(
      load(spec(R"("matrix": {"placement": [{"ranks": 1}, {"ranks": 1, "device": "cpu"}]})")).runs.size(),
      2u);
  EXPECT_EQ(mistakes(spec(R"("matrix": {"placement": [{"ranks": 2}, {"ranks": 2}], "seed": [0, 1]})")),
            Lines{"spec.json: matrix.placement[1]: gives the same run as matrix.placement[0]"});
}

TEST_F(SpecMatrix, ThreadsMoveWithAPlacementAndTellNoRunsApart) {
  const Experiment experiment =
      load(spec(R"("matrix": {"placement.ranks,placement.threads": [[1, 4], [2, null]]})"));
  EXPECT_EQ(experiment.runs[0].threads, 4);
  EXPECT_EQ(experiment.runs[0].id, load_one(spec()).id);
  EXPECT_EQ(experiment.runs[0].with_placement().at("placement").at("threads"), 4);
  EXPECT_EQ(experiment.runs[1].threads, std::nullopt);
  EXPECT_EQ(
      mistakes(spec(R"("matrix": {"placement.threads": [1, 2]})")),
      Lines{"spec.json: matrix.placement.threads[1]: gives the same run as matrix.placement.threads[0]"});
}

TEST_F(SpecMatrix, RefusesTheSameRunTwice) {
  EXPECT_EQ(
      mistakes(spec(
          R"("matrix": {"seed": [0, 1], "strategy": ["fake_own", "fake_pooled", {"name": "fake_own", "momentum": 0.1}]})")),
      Lines{"spec.json: matrix.strategy[2]: gives the same run as matrix.strategy[0]"});
}

TEST_F(SpecMatrix, CapsTheNumberOfRuns) {
  std::string seeds = "0";
  for (int i = 1; i < 200; ++i) seeds += ", " + std::to_string(i);
  EXPECT_EQ(mistakes(spec(
                "\"matrix\": {\"seed\": [" + seeds + "], \"eval_every\": [" + seeds +
                "]}, "
                R"("contrasts": [{"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled"}])")),
            Lines{"spec.json: matrix: more than 10000 runs"});
}

TEST_F(SpecMatrix, ExcludesCellsByPartialMatches) {
  const std::string text =
      spec(R"j("matrix": {"seed": [0, 1], "towers": [4, 2], "strategy": ["fake_own", {"name": "fake_pooled",
      "gradient": "stopped"}, "fake_pooled"]}, "exclude": [{"strategy.name": "fake_own", "towers": 4}, {"seed": 1, "towers": 2},
      {"strategy": "fake_pooled(gradient=stopped)"}])j");
  EXPECT_EQ(cells(text),
            (Lines{"0 4x2 fake_pooled", "0 2x2 fake_own", "0 2x2 fake_pooled", "1 4x2 fake_pooled"}));
  const Experiment experiment = load(text);
  ASSERT_EQ(experiment.excluded.size(), 8u);
  EXPECT_EQ(experiment.excluded[0].rule, 0u);
  EXPECT_EQ(experiment.excluded[0].id.rfind("fake_own-4x2-seed0-", 0), 0u);
  EXPECT_EQ(experiment.excluded[1].rule, 2u);
  EXPECT_EQ(experiment.excluded[5].rule, 1u);
}

TEST_F(SpecMatrix, AnExcludedCellMayBeImpossible) {
  EXPECT_EQ(load(spec(R"("matrix": {"towers": [2, 4], "batch_per_tower": [[1, 2], 3]},
                         "exclude": [{"towers": 4, "batch_per_tower": [1, 2]}])"))
                .runs.size(),
            3u);
}

TEST_F(SpecMatrix, ARuleThatRemovesNothingIsAMistake) {
  EXPECT_EQ(
      mistakes(spec(
          R"("matrix": {"towers,batch_per_tower": [[4, 1], [2, 2]], "strategy": ["fake_own", "fake_pooled"]}, "exclude": [
      {"towers": 8}, {"strategy": "fake_ownn"}, {"towers": 4, "batch_per_tower": 2}, {"towers": 4}, {"towers": 4, "strategy": "fake_own"},
      {"optimiser.lr": 1}, {}, 3])")),
      (Lines{"spec.json: exclude[7]: expected an object, got 3",
             "spec.json: exclude[5].optimiser.lr: unknown key; did you mean \"optimizer\"?",
             "spec.json: exclude[6]: expected keys and values to match, got {}",
             "spec.json: exclude[0].towers: no run has 8; there are: 2, 4",
             "spec.json: exclude[1].strategy: no run has \"fake_ownn\"; did you mean \"fake_own\"?",
             "spec.json: exclude[2]: no run matches all of its keys",
             "spec.json: exclude[4]: removes nothing: earlier rules have removed all runs that it matches"}));
  EXPECT_EQ(mistakes(spec(R"("exclude": [{"towers": 4}])")), Lines{"spec.json: exclude: removes all runs"});
}

TEST_F(SpecMatrix, ContrastsNameStrategiesOfTheMatrix) {
  const Experiment experiment = load(spec(R"j("populations": ["saved", "batch"], "matrix": {"towers": [4, 2],
      "strategy": ["fake_own", {"name": "fake_pooled", "gradient": "stopped"}, "fake_groups", {"name": "fake_groups", "groups": 4}]},
      "contrasts": [{"metric": "mean_iou", "strategy": "fake_pooled", "above": "fake_own"},
                    {"metric": "mean_iou", "at": {"towers": 4}, "strategy": "fake_groups(groups=4)", "above": "fake_groups",
                     "population": "batch", "equivalence_margin": 0.01}])j"));
  ASSERT_EQ(experiment.contrasts.size(), 2u);
  const Contrast& first = experiment.contrasts[0];
  EXPECT_EQ(first.metric, "mean_iou");
  EXPECT_EQ(first.strategy, "fake_pooled(gradient=stopped)");
  EXPECT_EQ(first.above, "fake_own");
  EXPECT_EQ(first.population, "saved");
  EXPECT_EQ(first.at, Json::object());
  EXPECT_FALSE(first.equivalence_margin);
  EXPECT_EQ(first.as_written,
            Json::parse(R"({"metric": "mean_iou", "strategy": "fake_pooled", "above": "fake_own"})"));
  const Contrast& second = experiment.contrasts[1];
  EXPECT_EQ(second.at, Json::parse(R"({"towers": 4})"));
  EXPECT_EQ(second.strategy, "fake_groups(groups=4)");
  EXPECT_EQ(second.above, "fake_groups");
  EXPECT_EQ(second.population, "batch");
  EXPECT_EQ(second.equivalence_margin, 0.01);
}

TEST_F(SpecMatrix, ComparesWithPublishedNumbers) {
  const Experiment experiment = load(spec(
      R"("populations": ["saved", "precise"], "published": [{"metric": "mean_iou", "from": 0.46, "to": 0.49, "source": "S", "population": "precise"},
                        {"metric": "relative_images_per_s", "from": 0.7, "to": 0.7, "source": "S"}])"));
  ASSERT_EQ(experiment.published.size(), 2u);
  EXPECT_EQ(experiment.published[0].from, 0.46);
  EXPECT_EQ(experiment.published[0].population, "precise");
  EXPECT_EQ(mistakes(spec(R"("published": [
      {"metric": "mean_iou", "from": 2, "to": 1, "source": "S"}, {"metric": "mean_iou", "from": 1, "to": 2, "source": "S", "at": {"towers": 99}},
      {"metric": "mean_iou", "from": 1, "to": 2, "source": "S", "population": "batch"}, {"metric": "mean_iou", "from": 1, "to": 2}])")),
            (Lines{"spec.json: published[3].source: missing, expected a text that is not empty",
                   "spec.json: published[0].to: expected at least from, 2.0, got 1.0",
                   "spec.json: published[1].at.towers: no run has 99; there are: 4",
                   "spec.json: published[2].population: \"batch\" is not among the populations of the runs, "
                   "[\"saved\"]"}));
}

TEST_F(SpecMatrix, TellsAMetricThatIsNotThereBesideAStrategyThatIsNot) {
  EXPECT_EQ(
      mistakes(spec(
          R"("matrix": {"strategy": ["fake_own", "fake_pooled"]}, "contrasts": [
                    {"metric": "mean_iuo", "strategy": "fake_pooled", "above": "fake_onw", "population": "savd"}])")),
      (Lines{"spec.json: contrasts[0].above: no run has the strategy \"fake_onw\"; did you mean "
             "\"fake_own\"?",
             "spec.json: contrasts[0].population: expected saved, tower:K, mean, pooled, precise, batch, "
             "mix:A, own_tower, ema_precise or ema_live, got \"savd\"; did you mean \"saved\"?",
             "spec.json: contrasts[0].metric: no run has the metric \"mean_iuo\"; did you mean "
             "\"mean_iou\"?"}));
}

TEST_F(SpecMatrix, RefusesContrastsThatNoRunCanAnswer) {
  EXPECT_EQ(
      mistakes(spec(
          R"j("matrix": {"towers": [4, 2], "strategy": ["fake_own", {"name": "fake_pooled", "gradient": "stopped"},
      {"name": "fake_pooled", "momentum": 0.5}]}, "exclude": [{"towers": 2, "strategy": "fake_own"}], "contrasts": [
      {"metric": "mean_iou", "strategy": "fake_onw", "above": "fake_pooled"},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_own"},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "at": {"towers": 8}},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "at": {"towers": 2}},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "at": {"tower": 2}},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "population": "batch"},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "population": "ema"},
      {"metric": "mean_iou", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "population": "savd"},
      {"metric": "", "strategy": "fake_own", "above": "fake_pooled(momentum=0.5)", "margin": 1, "equivalence_margin": 0}]
      )j")),
      (Lines{"spec.json: contrasts[8].margin: unknown key; known: metric, at, strategy, above, runs, "
             "above_runs, population, above_population, equivalence_margin",
             "spec.json: contrasts[8].metric: expected a text that is not empty, got \"\"",
             "spec.json: contrasts[8].equivalence_margin: expected a number > 0 or null, got 0",
             "spec.json: contrasts[0].strategy: no run has the strategy \"fake_onw\"; did you mean "
             "\"fake_own\"?",
             "spec.json: contrasts[0].above: \"fake_pooled\" is the name of several strategies; known: "
             "fake_pooled(gradient=stopped), fake_pooled(momentum=0.5)",
             "spec.json: contrasts[1].above: expected another strategy than fake_own, or another "
             "above_population",
             "spec.json: contrasts[2].at.towers: no run has 8; there are: 4, 2",
             "spec.json: contrasts[3].at: no run of fake_own matches",
             "spec.json: contrasts[4].at.tower: unknown key; did you mean \"towers\"?",
             "spec.json: contrasts[5].population: \"batch\" is not among the populations of the runs, "
             "[\"saved\"]",
             "spec.json: contrasts[6].population: the runs have no averaged weights: weight_ema is null",
             "spec.json: contrasts[7].population: expected saved, tower:K, mean, pooled, precise, batch, "
             "mix:A, own_tower, ema_precise or ema_live, got \"savd\"; did you mean \"saved\"?"}));
}

TEST_F(SpecMatrix, AMetricThatNoRunHasIsAMistake) {
  const auto with_metric = [&](const std::string& metric) {
    return mistakes(spec(R"("matrix": {"strategy": ["fake_own", "fake_pooled"]},
        "contrasts": [{"metric": ")" +
                         metric + R"(", "strategy": "fake_own", "above": "fake_pooled"}])"));
  };
  EXPECT_TRUE(with_metric("images_per_s").empty());
  EXPECT_TRUE(with_metric("groups.drive.mean_iou").empty());
  EXPECT_EQ(
      with_metric("mean_iuo"),
      (Lines{
          R"(spec.json: contrasts[0].metric: no run has the metric "mean_iuo"; did you mean "mean_iou"?)"}));
}

}  // namespace
}  // namespace bnlab
