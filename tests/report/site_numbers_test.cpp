#include "harness/report/site_numbers.hpp"

#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

Record with_sites(const RunSpec& run, const Json& sites) {
  RunAccount account = synthetic_account(run, 0.5, 1);
  account.result["sites"] = sites;
  return Record(compose_record(account), "record.json");
}

Json two_sites(double error) {
  return {{{"name", "first"}, {"channels", 8}, {"saved_mean_error", error}},
          {{"name", "second"}, {"channels", 8}, {"saved_mean_error", 2 * error}, {"between_sets", 0.5}}};
}

TEST(SiteNumbers, AreThoseOfEverySeedInTheOrderOfTheNetwork) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs)
    records.push_back(with_sites(run, two_sites(run.seed == 0 ? 0.1 : 0.3)));
  const Json json = report_json(make_report(experiment, records));
  const Json& sites = json.at("cells").at(0).at("sites");
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].at("name"), "first");
  EXPECT_FALSE(sites[0].contains("between_sets"));
  EXPECT_EQ(sites[1].at("saved_mean_error").at("n"), 2);
  EXPECT_DOUBLE_EQ(sites[1].at("saved_mean_error").at("mean").get<double>(), 0.4);
}

TEST(SiteNumbers, AreNoneWhereRecordsNameTheirSitesAlone) {
  const Experiment experiment = synthetic_experiment(1);
  const Record record = synthetic_record(experiment.runs[0], 0.5, 1);
  EXPECT_TRUE(site_numbers({&record}).empty());
  EXPECT_TRUE(site_numbers({}).empty());
}

}  // namespace
}  // namespace bnlab
