// What a record depends on, and when it is stale: by the committed numbers of the panel, not by how the code
// is written.
#include "harness/numerics/panel.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

const Json kRun = Json::parse(R"({
  "task": {"name": "shapes", "size": [40, 40], "train": 512, "test": 128, "nuisance": 0.2,
           "loss": {"name": "cross_entropy", "label_smoothing": 0.0, "class_weights": null}},
  "model": {"name": "unet", "base": 8, "levels": 3},
  "strategy": {"name": "sync", "group_size": null, "route": "all_gather", "gradient": "full", "variance": "pooled",
               "moments": "chan", "eps": 1e-05, "momentum": 0.1, "affine": true},
  "optimizer": {"name": "sgd", "lr": 0.1, "schedule": "poly", "clip_gradient_norm": null, "momentum": 0.9, "nesterov": false},
  "steps": 300, "seed": 0, "precision": "float32", "populations": ["saved", "batch"], "shards": "iid",
  "weight_ema": null})");

Json with(const std::string& pointer, const Json& value) {
  Json run = kRun;
  run[Json::json_pointer(pointer)] = value;
  return run;
}

bool depends(const Json& run, const std::string& entry) {
  return numerics_of(run, "cpu").contains(entry);
}

TEST(Numerics, ARunDependsOnItsComponentsAndOnWhatItSetsOtherwise) {
  EXPECT_TRUE(depends(kRun, "base"));
  EXPECT_TRUE(depends(kRun, "sync"));
  EXPECT_TRUE(depends(kRun, "float32"));
  EXPECT_TRUE(depends(kRun, "population batch"));
  EXPECT_FALSE(depends(kRun, "group_norm"));
  EXPECT_FALSE(depends(kRun, "sync stopped"));
  EXPECT_FALSE(depends(kRun, "population precise"));
  EXPECT_FALSE(depends(kRun, "sources of cuda"));
}

TEST(Numerics, OptionsCountByTextAndTruthAndWhetherNumbersAreOthers) {
  EXPECT_TRUE(depends(with("/strategy/gradient", "stopped"), "sync stopped"));
  EXPECT_TRUE(depends(with("/strategy/group_size", 4), "sync group_size"));
  EXPECT_TRUE(depends(with("/optimizer/nesterov", true), "nesterov"));
  EXPECT_TRUE(depends(with("/optimizer/clip_gradient_norm", 5.0), "clip_gradient_norm"));
  EXPECT_FALSE(depends(kRun, "clip_gradient_norm"));
  EXPECT_TRUE(depends(with("/strategy/momentum", nullptr), "momentum null"));
  EXPECT_TRUE(depends(with("/strategy/momentum", 0.01), "momentum"));
  EXPECT_FALSE(depends(kRun, "momentum"));
  EXPECT_TRUE(depends(with("/shards", "sorted:class"), "shards sorted"));
  EXPECT_TRUE(depends(with("/populations", {"saved", "tower:5"}), "population tower"));
  EXPECT_TRUE(depends(with("/task/loss", {{"name", "ohem"}}), "ohem"));
}

TEST(Numerics, AStrategyThatIsBuiltOnAnotherDependsOnBoth) {
  const Json frozen = with(
      "/strategy", {{"name", "frozen"},
                    {"from_step", nullptr},
                    {"base", {{"name", "precise"}, {"base", {{"name", "ghost"}, {"virtual_batch", 2}}}}}});
  for (const char* entry : {"frozen", "precise", "ghost"}) EXPECT_TRUE(depends(frozen, entry)) << entry;
  EXPECT_FALSE(depends(frozen, "sync"));
}

TEST(Numerics, WhereAndHowLongARunTrainsChangesNothing) {
  const Json parts = numerics_of(kRun, "cpu");
  EXPECT_EQ(parts, numerics_of(with("/seed", 5), "cpu"));
  EXPECT_EQ(parts, numerics_of(with("/steps", 5), "cpu"));
}

TEST(Numerics, SomebodysOwnComponentAndGpusCountByTheirSources) {
  EXPECT_TRUE(depends(with("/strategy", {{"name", "my_norm"}}), "sources of my_norm"));
  EXPECT_TRUE(numerics_of(kRun, "cuda").contains("sources of cuda"));
}

TEST(Numerics, AnotherHashNamesItsPart) {
  Json parts = numerics_of(kRun, "cpu");
  EXPECT_EQ(changed_numerics(parts), "");
  parts["sync"] = "0123456789abcdef";
  EXPECT_EQ(changed_numerics(parts), "sync");
  parts["an entry that is no more"] = "0123456789abcdef";
  EXPECT_EQ(changed_numerics(parts), "sync, an entry that is no more");
}

TEST(Numerics, ProgramsCompareByThePartsThatBothName) {
  const Json before = {{"base", "1"}, {"sync", "2"}};
  EXPECT_TRUE(same_numerics(before, {{"base", "1"}, {"an entry that the panel gained", "3"}}));
  EXPECT_FALSE(same_numerics(before, {{"base", "1"}, {"sync", "3"}}));
}

TEST(Numerics, RoundingIsNoDifferenceAndAnotherFormulaIs) {
  const PanelEntry& base = panel_entry("base");
  Json values = committed_panel().at("base").at("values");
  EXPECT_TRUE(panel_differences(base, values).empty());
  const double weights = values.at("weights");
  values["weights"] = weights + 1e-10;
  EXPECT_TRUE(panel_differences(base, values).empty());
  values["weights"] = weights + 1e-5;
  ASSERT_EQ(panel_differences(base, values).size(), 1U);
  EXPECT_NE(panel_differences(base, values).front().find("weights is "), std::string::npos);
  values.erase("weights");
  EXPECT_EQ(panel_differences(base, values), std::vector<std::string>{"weights is gone"});
}

TEST(Numerics, UnknownEntriesAreAnsweredWithTheNearest) {
  try {
    panel_entry("sink");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sync"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bnlab
