#include "harness/launch/selection.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

class Selection : public ::testing::Test {
 protected:
  size_t count(const std::vector<std::string>& filters) {
    return select_runs(experiment_.runs, filters).size();
  }

  std::string error(const std::string& filter) {
    try {
      select_runs(experiment_.runs, {filter});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      return error.what();
    }
    return "no error";
  }

  test::Scratch scratch_;
  Experiment experiment_ = load_experiment(scratch_.write_spec(
      test::behaves("ok"),
      R"(, "matrix": {"seed": [0, 1, 2], "optimizer.lr": [0.1, 0.2], "towers,batch_per_tower": [[4, 1], [2, 2]],
          "strategy": ["left", {"name": "left", "weight": 0.5}, "right"]})"));
};

TEST_F(Selection, NoFilterTakesAll) {
  EXPECT_EQ(count({}), 36U);
}

TEST_F(Selection, ValuesOfOneFilterAreAlternativesAndFiltersAllApply) {
  EXPECT_EQ(count({"seed=0,2"}), 24U);
  EXPECT_EQ(count({"seed=0,2", "strategy=right"}), 8U);
}

TEST_F(Selection, OfEachCellAnySeedIsOneAndThisBuildDrawsItAgain) {
  const auto drawn = select_runs(experiment_.runs, {"seed=any"});
  ASSERT_EQ(drawn.size(), 12U);
  std::set<std::string> cells;
  std::set<uint64_t> seeds;
  for (const RunSpec& run : drawn) {
    Json cell = run.resolved;
    cell.erase("seed");
    cells.insert(cell.dump());
    seeds.insert(run.seed);
  }
  EXPECT_EQ(cells.size(), 12U);
  EXPECT_GT(seeds.size(), 1U);  // one seed for all has a chance of 3^-11
  EXPECT_EQ(mapped(select_runs(experiment_.runs, {"seed=any"}), &RunSpec::id), mapped(drawn, &RunSpec::id));
  EXPECT_EQ(count({"seed=any", "strategy=right"}), 4U);
}

TEST_F(Selection, AStrategyMatchesByNameOrLabel) {
  EXPECT_EQ(count({"strategy=left"}), 24U);
  EXPECT_EQ(count({"strategy=left(weight=0.5)"}), 12U);
}

TEST_F(Selection, DottedKeysAndTowersMatch) {
  EXPECT_EQ(count({"optimizer.lr=1e-1"}), 18U);
  EXPECT_EQ(count({"towers=4"}), 18U);
  EXPECT_EQ(count({"task=fake"}), 36U);
}

TEST_F(Selection, ARunFitsAsItFitsARuleOfASpec) {
  EXPECT_EQ(count({"strategy={\"name\":\"left\",\"weight\":0.5}"}), 12U);
  EXPECT_EQ(count({"strategy.weight=0.5"}), 12U);
  EXPECT_EQ(count({"weight_ema=null"}), 36U);
  EXPECT_EQ(count({"placement.ranks=null"}), 36U);
}

TEST_F(Selection, AnUnknownKeyIsAnsweredWithTheNearest) {
  EXPECT_NE(error("sed=1").find("did you mean \"seed\""), std::string::npos) << error("sed=1");
}

TEST_F(Selection, AnUnknownValueIsAnsweredWithThoseThereAre) {
  EXPECT_NE(error("seed=0,7").find("there are: 0, 1, 2"), std::string::npos) << error("seed=0,7");
}

TEST_F(Selection, AFilterNeedsAKeyAndAValue) {
  EXPECT_NE(error("seed").find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(error("seed=").find("KEY=VALUE"), std::string::npos);
}

TEST_F(Selection, ARunIsNamedByItsId) {
  const std::string id = experiment_.runs.at(7).id;
  EXPECT_EQ(count({"run=" + id}), 1U);
  EXPECT_EQ(count({"run=" + id + "," + experiment_.runs.at(9).id, "seed=0"}), 2U);
  EXPECT_NE(error("run=" + id + "f").find("did you mean \"" + id + "\"?"), std::string::npos)
      << error("run=" + id + "f");
}

TEST_F(Selection, SlicesShareNoRunAndLeaveNoneOut) {
  std::multiset<std::string> all;
  for (const char* slice : {"1/5", "2/5", "3/5", "4/5", "5/5"})
    for (const RunSpec& run : select_runs(experiment_.runs, {}, slice)) all.insert(run.id);
  EXPECT_EQ(all.size(), 36U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 36U);
  for (const char* wrong : {"0/5", "6/5", "1", "a/b", "1/5x"})
    EXPECT_THROW(select_runs(experiment_.runs, {}, wrong), Error) << wrong;
}

}  // namespace
}  // namespace bnlab
