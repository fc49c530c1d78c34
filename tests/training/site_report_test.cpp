// What a run tells of its norm sites and of its gradients.
#include <fstream>

#include "harness/models/site_values.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class SiteReports : public ::testing::Test {
 protected:
  Json sites_of(Json keys, int ranks = 1) {
    keys["populations"] = {"saved", "precise"};
    keys["precise_batches"] = 4;
    return runs_.run(TrainingRuns::spec(keys), ranks).result.at("sites");
  }
  static double mean_of(const Json& sites, const char* key) {
    double sum = 0;
    for (const Json& site : sites) sum += site.at(key).get<double>();
    return sum / static_cast<double>(sites.size());
  }
  // The norms of metrics.jsonl, in order.
  static std::vector<double> gradient_norms(const TrainedRun& run) {
    std::ifstream lines(run.folder / "metrics.jsonl");
    std::vector<double> norms;
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (json.at("kind") == "train") norms.push_back(json.at("gradient_norm"));
    }
    return norms;
  }
  TrainingRuns runs_;
};

TEST_F(SiteReports, SavedStatisticsLieFarFromRecomputedOnesWhereTheyHardlyMoved) {
  const Json near =
      sites_of({{"strategy", {{"name", "sync"}, {"momentum", 0.9}}}, {"optimizer", {{"lr", 1e-6}}}});
  const Json far =
      sites_of({{"strategy", {{"name", "sync"}, {"momentum", 0.001}}}, {"optimizer", {{"lr", 1e-6}}}});
  EXPECT_LT(mean_of(near, "saved_mean_error"), 0.3);
  EXPECT_GT(mean_of(far, "saved_mean_error"), 2 * mean_of(near, "saved_mean_error"));
  EXPECT_GT(mean_of(far, "saved_variance_error"), 5 * mean_of(near, "saved_variance_error"));
}

TEST_F(SiteReports, RecomputedStatisticsLieWhereTheyShould) {
  const Json sites = sites_of({{"strategy", {{"name", "precise"}, {"base", "sync"}, {"batches", 4}}}});
  EXPECT_NEAR(mean_of(sites, "saved_mean_error"), 0, 1e-12);
  EXPECT_NEAR(mean_of(sites, "saved_variance_error"), 0, 1e-12);
}

TEST_F(SiteReports, TellHowManyValuesOfAChannelAnImageHas) {
  const RunSpec run = TrainingRuns::spec();
  const auto size = run.task.at("size").get<std::array<int64_t, 2>>();
  const Json sites = runs_.run(run, 2).result.at("sites");
  const std::vector<SiteValues> expected = site_values(run.model, size);
  ASSERT_EQ(sites.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sites[i].at("values_per_image"), expected[i].values);
  EXPECT_EQ(sites[0].at("values_per_image"), size[0] * size[1]);
}

TEST_F(SiteReports, VarianceBetweenTowersGrowsAsTheirBatchesShrink) {
  const Json one = sites_of({{"towers", 8}, {"batch_per_tower", 1}, {"strategy", "sync"}});
  const Json four = sites_of({{"towers", 2}, {"batch_per_tower", 4}, {"strategy", "sync"}});
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_GT(one[i].at("between_sets"), 0.0);
    EXPECT_LT(one[i].at("between_sets"), 1.0);
  }
  EXPECT_GT(mean_of(one, "between_sets"), 2 * mean_of(four, "between_sets"));
}

TEST_F(SiteReports, DoNotDependOnThePlacement) {
  const Json keys = {{"strategy", "per_tower"}, {"batch_per_tower", {3, 0, 2, 3}}};
  const Json one = sites_of(keys, 1), two = sites_of(keys, 2);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i)
    for (const char* key : {"saved_mean_error", "saved_variance_error", "between_sets"})
      EXPECT_NEAR(one[i].at(key).get<double>(), two[i].at(key).get<double>(), 1e-10) << key;
}

TEST_F(SiteReports, SayNothingOfSitesWithoutRunningStatistics) {
  const Json mean_only = {{"name", "weight_norm"},
                          {"mean_only_bn", true}};  // its means lie behind the convolutions
  for (const Json& strategy : {Json{{"name", "group_norm"}, {"groups", 2}}, mean_only})
    for (const Json& site : sites_of({{"strategy", strategy}})) EXPECT_EQ(site.size(), 3U) << site;
  const TrainedRun saved_only = runs_.run(TrainingRuns::spec(), 1);
  EXPECT_EQ(saved_only.result.at("sites").at(0).size(), 3U);
}

TEST_F(SiteReports, GradientNormsAreThoseOfAllRanksBeforeAnyClipping) {
  const auto norms = [&](const Json& optimizer, int ranks) {
    return gradient_norms(runs_.run(TrainingRuns::spec({{"optimizer", optimizer}, {"log_every", 1}}), ranks));
  };
  const std::vector<double> one = norms({{"lr", 0.1}}, 1), two = norms({{"lr", 0.1}}, 2);
  ASSERT_EQ(one.size(), 5U);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_GT(one[i], 0);
    EXPECT_NEAR(one[i], two[i], 1e-10 * one[i]);
  }
  EXPECT_EQ(norms({{"lr", 0.1}, {"clip_gradient_norm", one[0] / 100}}, 1).at(0), one[0]);
}

}  // namespace
}  // namespace bnlab
