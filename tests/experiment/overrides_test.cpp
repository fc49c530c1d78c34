#include "harness/experiment/overrides.hpp"

#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

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

TEST_F(Overrides, MistakesNameTheCommandLine) {
  EXPECT_TRUE(has(refusal({"optimizer.lrr=1"}), "command line: optimizer.lrr: unknown key"))
      << refusal({"optimizer.lrr=1"});
  EXPECT_TRUE(has(refusal({"steps=ten"}), "command line: steps: expected an integer"))
      << refusal({"steps=ten"});
  EXPECT_TRUE(has(refusal({"ten"}), "expected KEY=VALUE")) << refusal({"ten"});
}

}  // namespace
}  // namespace bnlab
