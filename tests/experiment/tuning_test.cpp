#include "harness/experiment/tuning.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "harness/experiment/dotted.hpp"
#include "harness/support/mapped.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

constexpr const char* kTwoStrategies =
    R"("matrix": {"seed": [0, 1], "strategy": ["fake_own", "fake_pooled"]})";

class Tuned : public SpecFiles {
 protected:
  // A spec with a matrix, and a tune of these keys.
  static std::string tuned(const std::string& keys, const std::string& matrix = kTwoStrategies) {
    return spec(matrix + R"(, "tune": {"metric": "mean_iou", )" + keys + "}");
  }
  static std::string tuned_lr(const std::string& more = "", const std::string& matrix = kTwoStrategies) {
    return tuned(R"("grid": {"optimizer.lr": [0.1, 0.2, 0.4]}, "seeds": [100, 101])" + more, matrix);
  }
  // A score for every run that tunes, from its strategy and its rate.
  static TuningScores scores(const Experiment& experiment, auto score) {
    TuningScores all;
    for (const RunSpec& run : experiment.tuning->runs.runs)
      all[run.id] = score(run.strategy.at("name").get<std::string>(), run.optimizer.at("lr").get<double>());
    return all;
  }
};

TEST_F(Tuned, EveryStrategyGetsTheSameGridOnOtherSeeds) {
  const Experiment experiment = load(tuned_lr());
  const Experiment& runs = experiment.tuning->runs;
  EXPECT_EQ(runs.name, "spec-tuning");
  EXPECT_EQ(experiment.runs.size(), 4U);
  ASSERT_EQ(runs.runs.size(), 12U);
  std::set<std::string> points;
  for (const RunSpec& run : runs.runs) {
    EXPECT_TRUE(run.seed == 100 || run.seed == 101);
    points.insert(label(run.strategy) + run.optimizer.at("lr").dump());
  }
  EXPECT_EQ(points.size(), 6U);
  EXPECT_FALSE(experiment.tuning->is_settled());
  EXPECT_EQ(load_experiment(write("kept.json", runs.asked.dump()), {}, runs.name).runs.back().id,
            runs.runs.back().id)
      << "its own spec must ask for the same runs";
}

TEST_F(Tuned, EachStrategyKeepsItsBest) {
  Experiment experiment = load(tuned_lr());
  const std::vector<std::string> before = {experiment.runs[0].id, experiment.runs[1].id};
  settle(experiment, scores(experiment, [](const std::string& strategy, double lr) {
           return strategy == "fake_own" ? 1 - lr : 0.5 - std::abs(lr - 0.2);
         }));
  ASSERT_TRUE(experiment.tuning->is_settled());
  ASSERT_EQ(experiment.runs.size(), 4U);
  for (const RunSpec& run : experiment.runs) {
    const bool own = run.strategy.at("name") == "fake_own";
    EXPECT_EQ(run.optimizer.at("lr"), own ? 0.1 : 0.2);
    EXPECT_EQ(run.resolved.at("optimizer").at("lr"), own ? 0.1 : 0.2);
  }
  EXPECT_EQ(experiment.runs[0].id, before[0]) << "0.1 is the default";
  EXPECT_NE(experiment.runs[1].id, before[1]);
  const TunedGroup& own = experiment.tuning->groups.at(0);
  EXPECT_EQ(own.name, "fake_own");
  EXPECT_EQ(own.at_edge, std::vector<std::string>{"optimizer.lr"});
  EXPECT_EQ(experiment.tuning->groups.at(1).at_edge, std::vector<std::string>{});
  ASSERT_EQ(own.candidates.size(), 3U);
  EXPECT_EQ(own.candidates[1].scores.size(), 2U);
  EXPECT_DOUBLE_EQ(own.candidates[1].mean(), 0.8);
}

TEST_F(Tuned, ARunThatDivergedCountsAsNothing) {
  Experiment experiment = load(tuned_lr());
  TuningScores all = scores(experiment, [](const std::string&, double lr) { return lr; });
  for (const RunSpec& run : experiment.tuning->runs.runs)
    if (run.optimizer.at("lr") == 0.4 && run.seed == 101)
      all[run.id] = std::nullopt;  // its mean is then 0.2, that of the rate 0.2, which comes before it
  settle(experiment, all);
  const Candidate& last = experiment.tuning->groups.at(0).candidates.at(2);
  EXPECT_EQ(last.diverged(), 1);
  EXPECT_DOUBLE_EQ(last.mean(), 0.2);
  EXPECT_EQ(experiment.runs.at(0).optimizer.at("lr"), 0.2);
}

TEST_F(Tuned, NothingHappensBeforeTheLastScore) {
  Experiment experiment = load(tuned_lr());
  TuningScores all = scores(experiment, [](const std::string&, double lr) { return lr; });
  const std::string before = experiment.runs.at(0).id;
  all.erase(experiment.tuning->runs.runs.back().id);
  settle(experiment, all);
  EXPECT_FALSE(experiment.tuning->is_settled());
  EXPECT_EQ(experiment.runs.at(0).id, before);
}

TEST_F(Tuned, ChoicesCanBeMadeApart) {
  const std::string matrix = R"("matrix": {"towers": [2, 4], "strategy": ["fake_own", "fake_pooled"]})";
  Experiment experiment = load(tuned_lr(R"(, "per": ["strategy", "towers"])", matrix));
  TuningScores all;
  for (const RunSpec& run : experiment.tuning->runs.runs) {
    const double lr = run.optimizer.at("lr");
    all[run.id] = run.towers() == 2 ? lr : -lr;
  }
  settle(experiment, all);
  EXPECT_EQ(experiment.tuning->groups.at(0).name, "fake_own, towers=2");
  for (const RunSpec& run : experiment.runs) EXPECT_EQ(run.optimizer.at("lr"), run.towers() == 2 ? 0.4 : 0.1);
}

TEST_F(Tuned, OtherAxesAreAveragedOrGiveWay) {
  const std::string matrix = R"("exclude": [{"towers": 2, "strategy": "fake_own"}],
                                "matrix": {"towers": [2, 4], "strategy": ["fake_own", "fake_pooled"]})";
  EXPECT_EQ(load(tuned_lr("", matrix)).tuning->runs.runs.size(), 18U);
  const Experiment small = load(tuned_lr(R"(, "set": {"towers": 4, "steps": 5})", matrix));
  ASSERT_EQ(small.tuning->runs.runs.size(), 12U) << "the rule that matches nothing any more is dropped";
  EXPECT_EQ(small.tuning->runs.runs[0].steps, 5);
  EXPECT_EQ(small.runs[0].steps, 10);
}

TEST_F(Tuned, AKeyGivenOnTheCommandLineIsNotTuned) {
  const std::string file = write("spec.json", tuned_lr());
  const Experiment given = load_experiment(file, {"optimizer.lr=0.3"});
  EXPECT_EQ(given.tuning, nullptr);
  EXPECT_EQ(given.runs.at(0).optimizer.at("lr"), 0.3);
  const Experiment whole = load_experiment(file, {R"(optimizer={"name":"sgd","lr":0.3})"});
  EXPECT_EQ(whole.tuning, nullptr) << "the key is a part of what was given";
  const std::string of_wholes = write(
      "spec.json", tuned(R"("grid": {"optimizer": ["sgd", {"name": "sgd", "lr": 0.2}]}, "seeds": [100])"));
  try {
    load_experiment(of_wholes, {"optimizer.lr=0.3"});
    ADD_FAILURE() << "tuning would undo it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tune.grid chooses the whole of optimizer"), std::string::npos)
        << error.what();
  }
}

TEST_F(Tuned, WhatMightBeChosenFitsEveryRunOfTheMatrix) {
  const std::string odd = R"("matrix": {"batch_per_tower": [2, 3], "strategy": ["fake_own", "fake_pooled"]})";
  const Lines refused = mistakes(tuned(
      R"("grid": {"accumulate": [1, 2]}, "seeds": [100], "set": {"matrix.batch_per_tower": [2]})", odd));
  ASSERT_EQ(refused.size(), 2U);  // for each strategy
  EXPECT_NE(refused[0].find("tune: might choose 2, with which runs such as fake_own-4x3"), std::string::npos)
      << refused[0];
  EXPECT_EQ(mistakes(tuned(R"("grid": {"accumulate": [1, 2]}, "seeds": [100])")), Lines{});
}

TEST_F(Tuned, AComparisonKeepsAStrategyWhoseOptionsAreChosen) {
  const auto with = [](const std::string& at) {
    return spec(R"("populations": ["saved", "batch"], "matrix": {"seed": [0, 1], "towers": [2, 4]},
      "contrasts": [{"metric": "mean_iou", "strategy": "fake_pooled", "above": "fake_pooled", "at": {)" +
                at + R"(}, "above_population": "batch"}],
      "tune": {"metric": "mean_iou", "per": ["towers"], "grid": {"strategy.momentum": [0.2, 0.4]}, "seeds": [100]})");
  };
  Experiment experiment = load(with(R"("towers": 2)"));
  TuningScores all;
  for (const RunSpec& run : experiment.tuning->runs.runs) {
    const double momentum = run.strategy.at("momentum");
    all[run.id] = run.towers() == 2 ? momentum : -momentum;
  }
  settle(experiment, all);
  EXPECT_EQ(experiment.contrasts.at(0).strategy, "fake_pooled(momentum=0.4)");
  EXPECT_EQ(experiment.contrasts.at(0).above, "fake_pooled(momentum=0.4)");
  EXPECT_EQ(experiment.contrasts.at(0).declared_strategy, "fake_pooled") << "whatever is chosen";
  const Lines refused = mistakes(with(""));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused[0].find("contrasts[0].at: tune.grid chooses options of fake_pooled for each of"),
            std::string::npos)
      << refused[0];
}

class TunedLength : public Tuned {
 protected:
  static std::string lengths(const std::string& more = "") {
    return tuned(R"("grid": {"optimizer.lr": [0.1, 0.2]}, "seeds": [100], "lengths": [10, 20, 40, 80])" +
                 more);
  }
  // The scores that `score(strategy, lr, steps)` gives.
  static TuningScores scores_at(const std::vector<RunSpec>& runs, auto score) {
    TuningScores all;
    for (const RunSpec& run : runs) {
      all[run.id] =
          score(run.strategy.at("name").get<std::string>(), run.optimizer.at("lr").get<double>(), run.steps);
    }
    return all;
  }
  static std::set<int64_t> lengths_of(const std::vector<RunSpec>& runs) {
    std::set<int64_t> all;
    for (const RunSpec& run : runs) all.insert(run.steps);
    return all;
  }
};

TEST_F(TunedLength, IsTheShortestWhoseDoublingGainsNobodyMuch) {
  Experiment experiment = load(lengths());
  // One is learnt after 20 steps at the rate 0.2, the other after 10 at any; at 0.1 the first learns later.
  const auto score = [](const std::string& strategy, double lr, int64_t steps) {
    const bool own = strategy == "fake_own";
    const double after = own ? (lr == 0.2 ? 20 : 60) : 10;
    return 0.5 - (static_cast<double>(steps) < after ? 0.3 : 0.001) - (own ? 0 : lr / 100);
  };
  TuningScores all;
  std::vector<std::set<int64_t>> asked;
  while (!experiment.tuning->is_settled()) {
    const auto runs = needed_runs(*experiment.tuning, all);
    asked.push_back(lengths_of(runs));
    all = scores_at(runs, score);
    settle(experiment, all);
    ASSERT_LT(asked.size(), 5U);
  }
  EXPECT_EQ(asked, (std::vector<std::set<int64_t>>{{10, 20}, {10, 20, 40}}))
      << "80 steps are never asked for";
  const Tuning& tuning = *experiment.tuning;
  EXPECT_EQ(tuning.steps, 20);
  EXPECT_EQ(tuning.still_gaining, std::vector<std::string>{});
  EXPECT_EQ(tuning.length_sentence(), "20 steps: doubling them gains each strategy less than 0.01");
  ASSERT_EQ(tuning.groups.at(0).best_means.size(), 3U);
  EXPECT_DOUBLE_EQ(tuning.groups.at(0).best_means[0], 0.2);
  EXPECT_DOUBLE_EQ(tuning.groups.at(0).best_means[2], 0.499);
  for (const RunSpec& run : experiment.runs) {
    EXPECT_EQ(run.steps, 20);
    EXPECT_EQ(run.resolved.at("steps"), 20);
    EXPECT_EQ(run.optimizer.at("lr"), run.strategy.at("name") == "fake_own" ? 0.2 : 0.1);
  }
}

TEST_F(TunedLength, ThatIsNeverLongEnoughIsTheLongestAndSaysWhoStillGains) {
  Experiment experiment = load(lengths());
  settle(experiment,
         scores_at(experiment.tuning->runs.runs, [](const std::string& strategy, double, int64_t steps) {
           return strategy == "fake_own" ? 0.5 : static_cast<double>(steps) / 100;
         }));
  EXPECT_EQ(experiment.tuning->steps, 80);
  EXPECT_EQ(experiment.tuning->still_gaining, std::vector<std::string>{"fake_pooled"});
  EXPECT_EQ(
      experiment.tuning->length_sentence(),
      "80 steps, the longest that was tried. The last doubling still gained 0.01 or more for fake_pooled");
}

TEST_F(TunedLength, NeedsEveryScoreOfTheLengthsThatItCompares) {
  Experiment experiment = load(lengths());
  const auto first = needed_runs(*experiment.tuning, {});
  TuningScores all = scores_at(first, [](const std::string&, double, int64_t) { return 0.5; });
  all.erase(first.back().id);
  settle(experiment, all);
  EXPECT_FALSE(experiment.tuning->is_settled());
  EXPECT_EQ(needed_runs(*experiment.tuning, all).size(), first.size())
      << "and no longer run before it is there";
}

TEST_F(TunedLength, MayBeAllThatIsTunedAndReplacesEpochs) {
  Experiment experiment = load(tuned(R"("grid": {}, "seeds": [100], "lengths": [10, 20])"));
  EXPECT_EQ(experiment.tuning->runs.runs.size(), 4U);
  settle(experiment,
         scores_at(experiment.tuning->runs.runs, [](const std::string&, double, int64_t) { return 0.5; }));
  EXPECT_EQ(experiment.runs.at(0).steps, 10);
  EXPECT_EQ(experiment.tuning->sentence(),
            "mean_iou (saved statistics) chooses one length of training for all, on seed 100");

  const std::string file = write("spec.json", lengths());
  Experiment epochs = load_experiment(file, {"steps=null", "epochs=2"});
  EXPECT_TRUE(epochs.tuning->asked.lengths.empty()) << "the command line said how long";
  EXPECT_EQ(epochs.tuning->runs.runs.size(), 4U);
}

TEST_F(TunedLength, GoesWithWhatBelongsToItWhereTheCommandLineSetsIt) {
  const std::string gain = write("spec.json", lengths(R"(, "gain_below": 0.02)"));
  EXPECT_TRUE(load_experiment(gain, {"steps=50"}).tuning->asked.lengths.empty());
  const std::string halved = write("spec.json", lengths(R"(, "halvings": 1)"));
  EXPECT_EQ(load_experiment(halved, {"optimizer.lr=0.1"}).tuning->asked.halvings, 0);
}

TEST_F(TunedLength, MistakesAreNamed) {
  EXPECT_EQ(mistakes(tuned(R"("grid": {}, "seeds": [100], "lengths": [10, 25])")),
            Lines{"spec.json: tune.lengths[1]: expected 20, twice the one before, got 25"});
  EXPECT_EQ(mistakes(tuned(R"("grid": {}, "seeds": [100], "lengths": [10])")),
            Lines{"spec.json: tune.lengths: expected two or more: the longer one shows what doubling gains"});
  EXPECT_EQ(mistakes(lengths(R"(, "set": {"steps": 5})")),
            Lines{"spec.json: tune.set.steps: tune.lengths sets how long the runs are"});
  EXPECT_EQ(mistakes(tuned(R"("grid": {"steps": [5, 6]}, "seeds": [100], "lengths": [10, 20])")),
            Lines{"spec.json: tune.grid.steps: tune.lengths sets how long the runs are"});
}

class TunedByHalves : public TunedLength {
 protected:
  static std::string halved(const std::string& more) {
    return tuned(R"("grid": {"optimizer.lr": [0.1, 0.2, 0.4, 0.8]}, "seeds": [100], )" + more);
  }
  // Runs what is needed until the choice is made; returns how many runs each length had.
  static std::map<int64_t, int> settle_by(Experiment& experiment, auto score) {
    TuningScores all;
    std::vector<RunSpec> runs;
    while (!experiment.tuning->is_settled()) {
      runs = needed_runs(*experiment.tuning, all);
      if (runs.size() == all.size()) {
        ADD_FAILURE() << "not settled, and nothing is left to run";
        break;
      }
      all = scores_at(runs, score);
      settle(experiment, all);
    }
    EXPECT_EQ(needed_runs(*experiment.tuning, all).size(), all.size()) << "what was chosen asks for no more";
    std::map<int64_t, int> count;
    for (const RunSpec& run : runs) ++count[run.steps];
    return count;
  }
  static double steady(const std::string& strategy, double lr, int64_t steps) {
    const double best = strategy == "fake_own" ? 0.2 : 0.8;
    return static_cast<double>(steps) / 100 - std::abs(lr - best) / 10;
  }
};

TEST_F(TunedByHalves, OnlyTheBetterHalfIsTrainedLonger) {
  Experiment experiment = load(halved(R"("lengths": [10, 20, 40], "halvings": 2)"));
  EXPECT_EQ(most_needed_runs(*experiment.tuning, {}), 14U);
  EXPECT_EQ(settle_by(experiment, steady), (std::map<int64_t, int>{{10, 8}, {20, 4}, {40, 2}}))
      << "of two strategies";
  const Tuning& tuning = *experiment.tuning;
  EXPECT_EQ(tuning.steps, 40);
  const TunedGroup& own = tuning.groups.at(0);
  EXPECT_EQ(own.chosen().setting.at("optimizer.lr"), 0.2);
  EXPECT_EQ(tuning.groups.at(1).chosen().setting.at("optimizer.lr"), 0.8);
  EXPECT_EQ(tuning.groups.at(1).at_edge, std::vector<std::string>{"optimizer.lr"});
  ASSERT_EQ(own.candidates.size(), 4U) << "in the order of the grid";
  EXPECT_EQ(own.candidates[0].dropped_after, 20);
  EXPECT_EQ(own.candidates[1].dropped_after, std::nullopt);
  EXPECT_EQ(own.candidates[2].dropped_after, 10);
  EXPECT_EQ(own.candidates[3].dropped_after, 10);
  EXPECT_DOUBLE_EQ(own.candidates[0].mean(), 0.2 - 0.01) << "its scores are those where it was left out";
  EXPECT_DOUBLE_EQ(own.candidates[3].mean(), 0.1 - 0.06);
}

TEST_F(TunedByHalves, ChoosesAsTheFullGridWhereTheOrderHolds) {
  Experiment full = load(halved(R"("lengths": [10, 20, 40])"));
  Experiment halves = load(halved(R"("lengths": [10, 20, 40], "halvings": 2)"));
  EXPECT_EQ(settle_by(full, steady), (std::map<int64_t, int>{{10, 8}, {20, 8}, {40, 8}}));
  settle_by(halves, steady);
  EXPECT_EQ(mapped(full.runs, [](const RunSpec& run) { return run.id; }),
            mapped(halves.runs, [](const RunSpec& run) { return run.id; }));
}

TEST_F(TunedByHalves, ASettingThatStartsSlowlyIsLost) {
  Experiment experiment = load(halved(R"("lengths": [10, 20], "halvings": 1)"));
  settle_by(experiment,
            [](const std::string&, double lr, int64_t steps) { return steps == 10 ? lr : 2 - lr; });
  EXPECT_EQ(experiment.tuning->groups.at(0).chosen().setting.at("optimizer.lr"), 0.4)
      << "0.1 would have won in the end";
}

TEST_F(TunedByHalves, OfTheSameLengthTheFirstSettingsStay) {
  Experiment experiment = load(halved(R"("lengths": [10, 20], "halvings": 1)"));
  settle_by(experiment, [](const std::string&, double, int64_t) { return 0.5; });
  EXPECT_EQ(experiment.tuning->steps, 10) << "doubling gained nothing";
  EXPECT_EQ(experiment.tuning->groups.at(0).best, 0U);
  for (const Candidate& candidate : experiment.tuning->groups.at(0).candidates)
    EXPECT_EQ(candidate.dropped_after, std::nullopt) << "all were tried at the chosen length";
}

TEST_F(TunedByHalves, WithoutLengthsTheRunsBeginWithFewerSteps) {
  const std::string file = write("spec.json", halved(R"("halvings": 2)"));
  Experiment experiment = load_experiment(file, {"steps=43"});
  EXPECT_EQ(settle_by(experiment, steady), (std::map<int64_t, int>{{10, 8}, {21, 4}, {43, 2}}));
  EXPECT_EQ(experiment.tuning->steps, std::nullopt);
  for (const RunSpec& run : experiment.runs) {
    EXPECT_EQ(run.steps, 43);
    EXPECT_EQ(run.optimizer.at("lr"), run.strategy.at("name") == "fake_own" ? 0.2 : 0.8);
  }
  EXPECT_EQ(
      experiment.tuning->sentence(),
      "mean_iou (saved statistics) chooses optimizer.lr for each strategy, on seed 100. Tried are 10, 21, 43 "
      "steps. The better half of the settings goes on from the first 2");
}

TEST_F(TunedByHalves, MistakesAreNamed) {
  EXPECT_EQ(mistakes(halved(R"("lengths": [10, 20], "halvings": 2)")),
            Lines{"spec.json: tune.halvings: expected at most 1, one between two of tune.lengths, got 2"});
  EXPECT_EQ(mistakes(tuned(R"("grid": {}, "seeds": [100], "lengths": [10, 20], "halvings": 1)")),
            Lines{"spec.json: tune.halvings: there is nothing to halve: tune.grid has no settings"});
  EXPECT_EQ(
      mistakes(tuned(R"("grid": {"optimizer.lr": [0.1, 0.2]}, "seeds": [100], "halvings": 1)",
                     R"("matrix": {"seed": [0], "strategy": ["fake_own"], "steps": [10, 20]})")),
      Lines{"spec.json, with what tune sets: tune.halvings: expected `steps`, the same for all runs, or "
            "tune.lengths"});
  EXPECT_EQ(mistakes(halved(R"("halvings": 16)")).size(), 1U);
}

TEST_F(Tuned, MistakesAreNamed) {
  EXPECT_EQ(mistakes(tuned(R"("grid": {"optimizer.lr": [0.1]}, "seeds": [1, 100])")),
            Lines{"spec.json: tune.seeds[0]: 1 is a seed of the matrix; choose on others"});
  EXPECT_EQ(
      mistakes(tuned(R"("grid": {"strategy.momentum": [0.1]}, "seeds": [100])")),
      (Lines{
          R"(spec.json: tune.grid.strategy.momentum: the axis matrix.strategy sets it in every run)",
          R"(spec.json: tune.grid.strategy.momentum: expected a key outside strategy, for each of which a choice is made)"}));
  EXPECT_EQ(
      mistakes(tuned(R"("grid": {"optimizer.lr": [-1]}, "seeds": [100])")),
      Lines{R"(spec.json, with what tune sets: matrix.optimizer.lr[0]: expected a number > 0, got -1)"});
  EXPECT_EQ(mistakes(tuned_lr(R"(, "set": {"strategy": "fake_own"})")),
            Lines{"spec.json: tune.per: no run that tunes belongs to fake_pooled"});
  EXPECT_EQ(
      mistakes(tuned_lr(R"(, "population": "mean")")),
      Lines{R"(spec.json: tune.population: "mean" is not among the populations of the runs, ["saved"])"});
  const std::string pairs =
      R"("matrix": {"towers,batch_per_tower": [[4, 1], [2, 2]], "strategy": ["fake_own", "fake_pooled"]})";
  EXPECT_EQ(
      mistakes(tuned_lr(R"(, "set": {"towers": 4})", pairs)),
      Lines{"spec.json: tune.set: towers: the axis matrix.towers,batch_per_tower sets it in every run; set "
            "matrix.towers,batch_per_tower instead"});
  EXPECT_EQ(mistakes(tuned(R"("grid": {"optimizer.lrr": [1]}, "seeds": [100, 100])")),
            (Lines{"spec.json: tune.grid.optimizer.lrr: unknown key; did you mean \"optimizer.lr\"?",
                   "spec.json: tune.seeds[1]: 100 stands there twice"}));
  for (const std::string key : {"seed", "matrix.seed"}) {
    EXPECT_EQ(mistakes(tuned_lr(R"(, "set": {")" + key + R"(": [3]})")),
              Lines{"spec.json: tune.set." + key + ": tune.seeds sets the seeds of these runs"});
  }
  EXPECT_EQ(mistakes(tuned_lr(R"(, "set": {"optimizer.lr": 3})")),
            Lines{"spec.json: tune.set.optimizer.lr: tune.grid sets it in these runs"});
  EXPECT_EQ(
      mistakes(tuned_lr(R"(, "gain_below": 0.02)")),
      Lines{"spec.json: tune.gain_below: has no effect without tune.lengths; add these or leave it out"});
  EXPECT_EQ(mistakes(tuned(R"("grid": {}, "seeds": [100])")),
            Lines{"spec.json: tune.grid: expected keys and the values to choose from, got {}"});
}

TEST_F(Tuned, AComparisonCannotSayWhereByWhatIsChosen) {
  const auto contrasts = [](const std::string& at) {
    return std::string(kTwoStrategies) + R"(, "contrasts": [{"metric": "mean_iou", "at": {)" + at +
           R"(}, "strategy": "fake_own", "above": "fake_pooled"}])";
  };
  const auto refused = [](const std::string& key) {
    return Lines{"spec.json: contrasts[0].at." + key +
                 ": tuning chooses it, and may choose otherwise; leave it out"};
  };
  EXPECT_EQ(mistakes(tuned_lr("", contrasts(R"("optimizer.lr": 0.1)"))), refused("optimizer.lr"));
  EXPECT_EQ(mistakes(tuned_lr("", contrasts(R"("seed": 1)"))), Lines{});
}

TEST_F(Tuned, WholeComponentsAreChosenNotTheirNames) {
  const Lines refused = mistakes(tuned(R"("grid": {"optimizer.name": ["sgd"]}, "seeds": [100])"));
  ASSERT_FALSE(refused.empty());
  EXPECT_EQ(
      refused[0],
      "spec.json: tune.grid.optimizer.name: each has options of its own; choose among whole components, "
      "\"optimizer\": [{\"name\": ...}, ...]");
}

TEST_F(Tuned, RunsOnFilesNeedOtherImages) {
  const std::string matrix = R"("task": "fake_files", "matrix": {"strategy": ["fake_own", "fake_pooled"]})";
  const auto with_task = [](std::string text) {
    return text.replace(text.find(R"("task": "fake_shapes", )"), 23, "");
  };
  for (const std::string set :
       {"", R"(, "set": {"task.nuisance": 0.1})", R"(, "set": {"task.test_list": "a"})",
        R"(, "set": {"task.test_drives": ["a"]})"}) {
    const Lines refused = mistakes(with_task(tuned_lr(set, matrix)));
    ASSERT_EQ(refused.size(), 1U) << set;
    EXPECT_NE(refused[0].find("tune.set: expected a task with other test images"), std::string::npos)
        << refused[0];
  }
  EXPECT_EQ(mistakes(with_task(tuned_lr(R"(, "set": {"task.test_split": "val"})", matrix))), Lines{});
  const std::string drives =
      R"("task": {"name": "fake_files", "test_drives": ["b", "c"]}, "matrix": {"strategy": ["fake_own"]})";
  EXPECT_EQ(mistakes(with_task(tuned_lr(R"(, "set": {"task.test_drives": ["a"]})", drives))), Lines{});
  EXPECT_EQ(mistakes(with_task(tuned_lr(R"(, "set": {"task.test_drives": ["a", "b"]})", drives))).size(), 1U);
}

TEST_F(Tuned, SettingsAreShownShort) {
  EXPECT_EQ(setting_text(Json{{"optimizer.lr", 0.1}}), "0.1");
  EXPECT_EQ(setting_text(Json{{"optimizer.lr", 0.1}, {"optimizer.momentum", 0.9}}),
            "optimizer.lr=0.1, optimizer.momentum=0.9");
}

}  // namespace
}  // namespace bnlab
