// Reading spec files and the specs that they extend; keys that are set from outside.
#include "harness/experiment/document.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecDocument : public SpecFiles {};

TEST_F(SpecDocument, RefusesWhatIsNoReadableFile) {
  EXPECT_EQ(mistakes_of((folder_ / "none.json").string()),
            Lines{"none.json: cannot be read: No such file or directory"});
  std::filesystem::create_directories(folder_ / "folder.json");
  EXPECT_EQ(mistakes_of((folder_ / "folder.json").string()),
            Lines{"folder.json: expected a file with a JSON object, this is not an ordinary file"});
}

TEST_F(SpecDocument, NamesLineAndColumnOfSyntaxErrors) {
  EXPECT_EQ(
      mistakes("{\n  \"towers\": 4,\n  \"steps\" 10\n}"),
      (Lines{"spec.json: line 3, column 12: syntax error while parsing object separator - unexpected number "
             "literal; expected ':'",
             "    \"steps\" 10", "             ^"}));
  EXPECT_EQ(mistakes("{\"towers\": NaN}").size(), 3u);
  EXPECT_EQ(mistakes("{\"towers\": NaN}")[0].rfind("spec.json: line 1, column 12: ", 0), 0u);
  EXPECT_EQ(mistakes("{} x")[0].rfind("spec.json: line 1, column 4: ", 0), 0u);
  EXPECT_EQ(mistakes("")[0].rfind("spec.json: line 1, column 1: ", 0), 0u);
  EXPECT_EQ(mistakes("{\"a\": \"\xff\"}")[0].rfind("spec.json: line 1, column 8: ", 0), 0u);
  EXPECT_EQ(mistakes("[1]"), Lines{"spec.json: expected a JSON object, got [1]"});
}

TEST_F(SpecDocument, SaysWhereACommaIsMissing) {
  EXPECT_EQ(mistakes("{\"task\": \"fake_shapes\",\n \"steps\": 10 \"strategy\": \"sync\"}"),
            (Lines{"spec.json: line 2, column 14: expected a comma before \"strategy\"",
                   "   \"steps\": 10 \"strategy\": \"sync\"}", "               ^"}));
  EXPECT_EQ(mistakes("{\"matrix\": {}\n \"towers\": 4}")[0],
            "spec.json: line 2, column 2: expected a comma before \"towers\"");
  EXPECT_EQ(mistakes("{\"seeds\": [1 2]}")[0], "spec.json: line 1, column 14: expected a comma before 2");
  EXPECT_EQ(mistakes("{\"a\": [1 [2]]}")[0], "spec.json: line 1, column 10: expected a comma before [");
  for (const char* text :
       {"{\"a\": 1} {}", "{\"a\": 1 : 2}", "{\"a\": 1, 2}", "{\"a\" \"b\"}", "{\"a\": [1, \"["}) {
    EXPECT_EQ(mistakes(text)[0].find("comma before"), std::string::npos) << mistakes(text)[0];
  }
}

// Of a long line the part around the mistake is shown.
TEST_F(SpecDocument, ShowsSomeOfALongLine) {
  const Lines lines =
      mistakes("{\"question\": \"" + std::string(500, 'x') + "\" \"claim\": \"" + std::string(500, 'y'));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_LE(lines[1].size(), 102u) << lines[1];
  EXPECT_EQ(lines[1].substr(lines[2].size() - 1, 7), "\"claim\"");
}

// A terminal would obey them, and a message would end at a NUL.
TEST_F(SpecDocument, RefusesControlCharacters) {
  EXPECT_EQ(mistakes(R"({"question": "a\u001b[2J"})")[0],
            R"(spec.json: question: holds a control character (line 1): \u001b[)");
  EXPECT_EQ(mistakes(R"({"extends": "a\u0000b"})")[0],
            R"(spec.json: extends: holds a control character (line 1): \u0000b)");
  EXPECT_EQ(mistakes("{\n\"notes\\u009b\": 1}")[0],
            R"(spec.json: ["notes\u009b"]: holds a control character (line 2): \u009b)");
  EXPECT_EQ(mistakes(R"({"question": "two\nlines,\ttabbed, \u00e9"})"), mistakes("{}"));
}

TEST_F(SpecDocument, RefusesNumbersThatAreNotFinite) {
  EXPECT_EQ(mistakes("{\"steps\":\n 1e999}"),
            (Lines{"spec.json: line 2, column 6: expected finite numbers: number overflow parsing '1e999'",
                   "   1e999}", "       ^"}));
}

TEST_F(SpecDocument, NamesDuplicateKeysWithTheirLine) {
  EXPECT_EQ(
      mistakes(
          "{\"task\": \"fake_shapes\", \"model\": \"fake_net\", \"towers\": 4, \"batch_per_tower\": 1, "
          "\"steps\": 1,\n"
          " \"matrix\": {\"strategy\": [\"fake_own\",\n"
          "   {\"name\": \"fake_pooled\", \"momentum\": 0.1,\n    \"momentum\": 0.1}]},\n \"towers\": 4}"),
      (Lines{"spec.json: matrix.strategy[1].momentum: duplicate key (line 4)",
             "spec.json: towers: duplicate key (line 5)"}));
}

TEST_F(SpecDocument, CapsSizeAndDepth) {
  EXPECT_EQ(mistakes(spec("\"question\": \"" + std::string(1 << 20, 'x') + "\"")),
            Lines{"spec.json: larger than 1048576 bytes, the most a spec may have"});
  const std::string deepest(15, '[');
  EXPECT_EQ(mistakes("{\"matrix\": " + deepest + std::string(15, ']') + "}")[0],
            "spec.json: matrix: expected an object, got [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]");
  EXPECT_EQ(mistakes("{\"matrix\": " + std::string(100000, '[')),
            (Lines{"spec.json: line 1, column 27: nested deeper than 16 levels",
                   "  {\"matrix\": " + std::string(55, '['), "                            ^"}));
}

TEST_F(SpecDocument, AnswersUnknownKeysWithTheNearest) {
  EXPECT_EQ(
      mistakes(spec(
          R"("matrx": {}, "learning_rate": 1, "optimizer": {"name": "sgd", "momentm": 0.1}, "two words": 1)")),
      (Lines{
          "spec.json: matrx: unknown key; did you mean \"matrix\"?",
          "spec.json: learning_rate: unknown key; bnlab calls it \"optimizer.lr\"",
          "spec.json: [\"two words\"]: unknown key; known: question, claim, source, protocol, extends, "
          "matrix, "
          "exclude, contrasts, tune, published, task, model, strategy, towers, batch_per_tower, accumulate, "
          "statistics_per, recompute, "
          "optimizer, "
          "steps, "
          "epochs, "
          "seed, "
          "precision, loss_scaling, tf32, deterministic, cuda_graph, memory_format, loss_mean, eval_every, "
          "log_every, "
          "checkpoint_every, "
          "populations, "
          "precise_batches, "
          "evaluation, shards, "
          "weight_ema, gradient_route, average_weights_every, "
          "init_from, select, stop_early, warmup_steps, timing, data_workers, timeout_s, "
          "collective_timeout_s, placement",
          "spec.json: optimizer.momentm: unknown key of optimizer \"sgd\"; did you mean \"momentum\"?"}));
}

TEST_F(SpecDocument, AllowsComments) {
  EXPECT_EQ(load("// why\n{\"task\": \"fake_shapes\", // what\n" +
                 spec().substr(1 + std::string("\"task\": \"fake_shapes\",").size()))
                .runs.size(),
            1u);
}

TEST_F(SpecDocument, SaysWhatIsWrongInWordsOfSpecs) {
  const auto said = [&](const std::string& text, const std::string& part) {
    return mistakes(text).at(0).find(part) != std::string::npos;
  };
  EXPECT_TRUE(
      said("task: shapes\n", "expected a JSON object, {\"task\": ...}: specs are JSON, with double quotes"));
  EXPECT_TRUE(said("# of mine\n", "specs are JSON, with double quotes and with // for comments"));
  EXPECT_TRUE(said("{'task': 'shapes'}", "expected double quotes, as in \"task\""));
  EXPECT_TRUE(said("{\"task\": 'shapes'}", "line 1, column 10: expected double quotes"));
  EXPECT_TRUE(said("{\"tf32\": True}", "expected true, got True"));
  EXPECT_TRUE(said("{\"tf32\": [False]}", "expected false, got False"));
  EXPECT_TRUE(said("{\"seed\": None}", "expected null, got None"));
  EXPECT_TRUE(said("{\"towers\": 2,}", "expected no comma before the closing bracket"));
  EXPECT_TRUE(said("{\"matrix\": {\"seed\": [0, 1,]}}", "expected no comma before the closing bracket"));
}

TEST_F(SpecDocument, NumbersBeyondTheExactOnesAreRefused) {
  EXPECT_EQ(load_one(spec(R"("seed": 9007199254740992)")).seed, uint64_t{1} << 53);
  EXPECT_EQ(mistakes(spec(R"("seed": 9007199254740993)")),
            (Lines{"spec.json: seed: expected an integer in [0, 9007199254740992], got 9007199254740993"}));
  EXPECT_EQ(mistakes(spec(R"("collective_timeout_s": 1e10)")).size(), 1u);
  EXPECT_EQ(mistakes(spec(R"("collective_timeout_s": 1e-9)")).size(), 1u);
}

TEST_F(SpecDocument, SaysWhereTheRemarksOfAnOldSpecBelong) {
  EXPECT_EQ(
      mistakes(spec(R"("remarks": {"fake_pooled": "It pools."})")),
      (Lines{"spec.json: remarks: answers do not stand in the question: move the sentences to README.md in "
             "the experiment's folder of results"}));
}

TEST_F(SpecDocument, ReportsAllMistakesAtOnce) {
  EXPECT_EQ(
      mistakes(R"({"question": 3, "model": "fake_nte", "strategy": "fake_own", "towers": 2.5, "steps": "ten",
                         "matrix": {"seed": [0, -1]}, "exclude": [{"towrs": 2}], "contrasts": [{"metric": ""}]})"),
      (Lines{
          "spec.json: question: expected a text, got 3",
          "spec.json: contrasts[0].metric: expected a text that is not empty, got \"\"",
          "spec.json: exclude[0].towrs: unknown key; did you mean \"towers\"?",
          "spec.json: task: missing, expected a task (its name, or {\"name\": ..., its parameters})",
          "spec.json: model: unknown model \"fake_nte\"; did you mean \"fake_net\"?",
          "spec.json: towers: expected an integer in [1, 4096], got 2.5",
          "spec.json: batch_per_tower: missing, expected an integer in [0, 1000000] or a list of integers in "
          "[0, 1000000]",
          "spec.json: steps: expected an integer in [1, 1000000000] or null, got \"ten\"",
          "spec.json: matrix.seed[1]: expected an integer in [0, 9007199254740992], got -1",
          "spec.json: contrasts[0]: expected strategy and above, or in their place runs and above_runs"}));
}

TEST_F(SpecDocument, RefusesAFileNameThatNamesNoFolder) {
  EXPECT_EQ(mistakes_of(write("a b.json", spec())),
            Lines{"a b.json: expected a file name of letters, digits, _, - and . that begins with neither - "
                  "nor .: it names a folder of results"});
  EXPECT_EQ(mistakes_of(write("...json", spec())).size(), 1u);
}

TEST_F(SpecDocument, ExtendsABaseSpec) {
  write("bases/base.json", R"({"task": "fake_shapes", "model": "fake_net", "batch_per_tower": 2, "steps": 10,
      "question": "q", "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.3},
      "matrix": {"seed": [0, 1, 2], "towers": [1, 2]}, "strategy": {"name": "fake_pooled", "momentum": 0.2}})");
  const Experiment experiment =
      load(R"({"extends": "bases/base.json", "claim": "c", "steps": null, "epochs": 3,
      "optimizer": {"lr": 0.25}, "matrix": {"towers": [4], "model.base": [8]}})");
  EXPECT_EQ(experiment.question, "q");
  EXPECT_EQ(experiment.claim, "c");
  EXPECT_EQ(experiment.axes, (Lines{"seed", "towers", "model.base"}));
  ASSERT_EQ(experiment.runs.size(), 3u);
  const RunSpec& run = experiment.runs[1];
  EXPECT_EQ(run.optimizer["lr"], 0.25);
  EXPECT_EQ(run.optimizer["momentum"], 0.3);
  EXPECT_EQ(run.strategy["momentum"], 0.2);
  EXPECT_EQ(run.towers(), 4);
  EXPECT_EQ(run.seed, 1u);
  EXPECT_EQ(run.epochs, 3);
}

TEST_F(SpecDocument, AComponentOfAnotherNameReplacesTheBases) {
  write("base.json",
        R"({"task": "fake_shapes", "model": "fake_net", "towers": 4, "batch_per_tower": 1, "steps": 1,
                         "strategy": {"name": "fake_pooled", "gradient": "stopped"}})");
  const auto strategy = [&](const std::string& ours) {
    return label(load_one(R"({"extends": "base.json", "strategy": )" + ours + "}").strategy);
  };
  EXPECT_EQ(strategy(R"({"name": "fake_own"})"), "fake_own");
  EXPECT_EQ(strategy(R"("fake_own")"), "fake_own");
  EXPECT_EQ(strategy(R"({"name": "fake_pooled", "momentum": 0.5})"),
            "fake_pooled(momentum=0.5,gradient=stopped)");
  EXPECT_EQ(strategy(R"({"momentum": 0.5})"), "fake_pooled(momentum=0.5,gradient=stopped)");
}

TEST_F(SpecDocument, NullRemovesAnAxisOfTheBase) {
  write("base.json", spec(R"("matrix": {"towers,batch_per_tower": [[1, 1], [2, 1]], "seed": [0, 1]})"));
  EXPECT_EQ(load(R"({"extends": "base.json", "matrix": {"towers,batch_per_tower": null}})").axes,
            Lines{"seed"});
  EXPECT_EQ(mistakes(R"({"extends": "base.json", "matrix": {"towers": null}})"),
            (Lines{"spec.json: matrix.towers: the key \"towers\" is set twice",
                   "spec.json: matrix.towers: expected a list of values that is not empty, got null"}));
}

TEST_F(SpecDocument, NamesTheFileThatAMistakeIsIn) {
  write(
      "a.json",
      R"({"task": "fake_shapes", "model": {"name": "fake_net", "base": 0}, "matrix": {"seed": [0, "1"]}, "steps": 1})");
  write("b.json", R"({"extends": "a.json", "optimizer": {"name": "sgd", "lr": -1, "power": -2}})");
  EXPECT_EQ(
      mistakes(
          R"({"extends": "b.json", "strategy": "fake_own", "batch_per_tower": "2", "optimizer": {"power": -3}})"),
      (Lines{"a.json: model.base: expected an integer in [1, 512], got 0",
             "spec.json: batch_per_tower: expected an integer in [0, 1000000] or a list of integers in [0, "
             "1000000], got \"2\"",
             "b.json: optimizer.lr: expected a number > 0, got -1",
             "spec.json: optimizer.power: expected a number > 0, got -3",
             "a.json: matrix.seed[1]: expected an integer in [0, 9007199254740992], got \"1\""}));
}

TEST_F(SpecDocument, RefusesBasesThatCannotBeUsed) {
  EXPECT_EQ(mistakes(R"({"extends": "none.json"})"),
            (Lines{"none.json: cannot be read: No such file or directory",
                   "spec.json: extends: the base spec \"none.json\" cannot be used"}));
  EXPECT_EQ(mistakes(R"({"extends": 3})"), Lines{"spec.json: extends: expected the path of a spec, got 3"});
  EXPECT_EQ(mistakes(R"({"extends": "./spec.json"})"),
            Lines{"spec.json: extends: a cycle: \"./spec.json\" is extended by, or is, this spec"});
  write("other.json", R"({"extends": "spec.json"})");
  EXPECT_EQ(mistakes(R"({"extends": "other.json"})"),
            (Lines{"other.json: extends: a cycle: \"spec.json\" is extended by, or is, this spec",
                   "spec.json: extends: the base spec \"other.json\" cannot be used"}));
}

class Overrides : public SpecFiles {
 protected:
  Experiment with(const std::vector<std::string>& overrides, const std::string& more = "") const {
    return load_experiment(write("spec.json", spec(more)), overrides);
  }
  std::string refusal(const std::vector<std::string>& overrides, const std::string& more = "") const {
    try {
      with(overrides, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(Overrides, SetKeysAsTheSpecWould) {
  const RunSpec run =
      with({"steps=7", "strategy=fake_own", "optimizer.lr=0.5", "batch_per_tower=[1,2,3,4]"}).runs.at(0);
  EXPECT_EQ(run.steps, 7);
  EXPECT_EQ(run.strategy.at("name"), "fake_own");
  EXPECT_EQ(run.optimizer.at("lr"), 0.5);
  EXPECT_EQ(run.samples_per_tower, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(run.id,
            load_one(R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own", "towers": 4,
                                 "batch_per_tower": [1, 2, 3, 4], "steps": 7, "optimizer": {"lr": 0.5}})")
                .id);
}

TEST_F(Overrides, StandInTheSpecThatIsKept) {
  const Experiment experiment = with({"steps=7"}, R"("matrix": {"seed": [0, 1]})");
  EXPECT_EQ(experiment.asked.at("steps"), 7);
  const Experiment again = load_experiment(write("kept.json", experiment.asked.dump()), {}, "spec");
  EXPECT_EQ(again.name, "spec");
  ASSERT_EQ(again.runs.size(), 2U);
  EXPECT_EQ(again.runs[1].id, experiment.runs[1].id);
}

TEST_F(Overrides, AnAxisGivesWay) {
  const std::string matrix = R"("matrix": {"seed": [0, 1], "optimizer.lr": [0.1, 0.2]})";
  EXPECT_EQ(with({}, matrix).runs.size(), 4U);
  EXPECT_EQ(with({"seed=5"}, matrix).runs.size(), 2U);
  EXPECT_EQ(with({"optimizer.lr=0.3", "seed=5"}, matrix).runs.at(0).optimizer.at("lr"), 0.3);
  EXPECT_EQ(with({"matrix.seed=[0,1,2]"}, matrix).runs.size(), 6U);
  EXPECT_EQ(with({"matrix.optimizer.lr=[0.1]"}, matrix).runs.size(), 2U);
}

TEST_F(Overrides, WithoutEffectAreMistakes) {
  const std::string matrix =
      R"("matrix": {"towers,batch_per_tower": [[4, 1], [2, 2]], "strategy": ["fake_own"]})";
  EXPECT_EQ(refusal({"towers=8"}, matrix),
            "command line: towers: the axis matrix.towers,batch_per_tower sets it in every run; set "
            "matrix.towers,batch_per_tower instead, or choose runs with --only");
  EXPECT_TRUE(has(refusal({"strategy.momentum=0.5"}, matrix), "the axis matrix.strategy sets it"));
}

TEST_F(Overrides, TheirOrderDecidesNothing) {
  const std::string joint = R"("matrix": {"towers,batch_per_tower": [[4, 1], [2, 2]], "seed": [0, 1]})";
  const auto both = [&](const std::string& one, const std::string& other) {
    const Experiment there = with({one, other}, joint), back = with({other, one}, joint);
    EXPECT_EQ(there.asked, back.asked) << one << " " << other;
    return there;
  };
  const RunSpec part = both("optimizer.lr=0.5", R"(optimizer={"name": "sgd", "momentum": 0.5})").runs.at(0);
  EXPECT_EQ(part.optimizer.at("lr"), 0.5);
  EXPECT_EQ(part.optimizer.at("momentum"), 0.5);
  EXPECT_EQ(both("optimizer=sgd", "matrix.optimizer.lr=[0.1,0.2]").runs.size(), 8U);
  EXPECT_EQ(both("towers=4", R"(matrix={"seed": [0, 1, 2]})").runs.size(), 3U);
  EXPECT_EQ(both("steps=7", "steps=7").runs.at(0).steps, 7);
  EXPECT_EQ(both("matrix.strategy=[\"fake_pooled\"]", "matrix.strategy.momentum=[0.1,0.2]").runs.size(), 8U);
}

TEST_F(Overrides, ThatContradictEachOtherAreMistakesInEitherOrder) {
  const std::tuple<std::string, std::string, std::string> pairs[] = {
      {"steps=7", "steps=8", "steps: given as 7 and as 8"},
      {"strategy=fake_own", "strategy.name=fake_pooled",
       "strategy: given as \"fake_own\" and as \"fake_pooled\""},
      {"optimizer.lr=1", R"(optimizer={"name": "sgd", "lr": 2})", "optimizer.lr: given as 1 and as 2"},
      {"matrix.seed=[0]", "matrix.seed=[1]", "matrix.seed: given as [0] and as [1]"},
      {"optimizer.lr=1", "matrix.optimizer.lr=[0.1,0.2]",
       "optimizer.lr: given one value for all runs, and several by matrix.optimizer.lr"},
      {"optimizer.lr=1", R"(matrix={"optimizer.lr": [0.1, 0.2]})", "and several by matrix.optimizer.lr"},
      {R"(optimizer={"lr": 1})", "matrix.optimizer.lr=[0.1,0.2]", "optimizer.lr: given one value"},
      {"optimizer.lr=1", R"(matrix.optimizer=["sgd"])", "and several by matrix.optimizer;"},
      {"strategy=fake_own", R"(matrix.strategy=["fake_own", "fake_pooled"])", "strategy: given one value"},
      {"towers=4", "matrix.towers,batch_per_tower=[[4,1]]", "and several by matrix.towers,batch_per_tower;"},
      {"optimizer.lr=1", R"(tune={"grid": {"optimizer.lr": [1, 2]}, "seeds": [9], "metric": "mean_iou"})",
       "and several by tune.grid.optimizer.lr"},
      {"steps=7", R"(tune={"grid": {}, "lengths": [1, 2], "seeds": [9], "metric": "mean_iou"})",
       "and several by tune.lengths"}};
  for (const auto& [one, other, why] : pairs) {
    const std::string text = refusal({one, other}), back = refusal({other, one});
    EXPECT_TRUE(has(text, "command line: ") && has(text, why)) << one << " " << other << ": " << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 0) << text;
    EXPECT_TRUE(has(back, "; give one of them")) << back;
    EXPECT_EQ(refusal({one}), "") << one;
  }
}

TEST_F(Overrides, MistakesNameTheCommandLine) {
  EXPECT_TRUE(has(refusal({"optimizer.lrr=1"}), "command line: optimizer.lrr: unknown key"))
      << refusal({"optimizer.lrr=1"});
  EXPECT_TRUE(has(refusal({"steps=ten"}), "command line: steps: expected an integer"))
      << refusal({"steps=ten"});
  EXPECT_TRUE(has(refusal({"ten"}), "expected KEY=VALUE")) << refusal({"ten"});
  const std::string three = refusal({"b.json", "c.json", "d.json", "steps=3"});  // specs/*.json
  EXPECT_TRUE(has(three, "got \"b.json\" and 2 more without a key; one spec at a time")) << three;
  EXPECT_EQ(std::ranges::count(three, '\n'), 0) << three;
  for (const std::string key : {"steps.x", "optimizer.lr.x", "towers.x.y"}) {
    const std::string text = refusal({key + "=1"}, R"("optimizer": {"lr": 0.1})");
    EXPECT_TRUE(has(text, "command line: " + key + ": unknown key")) << text;
  }
  EXPECT_TRUE(has(refusal({"extends=other.json"}), "only there")) << refusal({"extends=other.json"});
}

}  // namespace
}  // namespace bnlab
