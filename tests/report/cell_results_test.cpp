#include "harness/report/cell_results.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

Record with_log(const std::filesystem::path& folder, uint64_t seed, Status status, const std::string& log) {
  const RunSpec run = synthetic_run("sync", 8, 2, seed);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "metrics.jsonl") << log;
  const Record record =
      status == Status::ok ? synthetic_record(run, 0.5, 1) : synthetic_failure(run, status, 1);
  return Record(record.json(), folder / "record.json");
}

std::string train(int step, double loss) {
  return Json({{"kind", "train"}, {"step", step}, {"loss", loss}, {"gradient_norm", 10 * loss}}).dump() +
         "\n";
}

std::string eval(int step, const char* population, double score) {
  return Json({{"kind", "eval"},
               {"step", step},
               {"population", population},
               {"metrics", {{"mean_iou", score}}}})
             .dump() +
         "\n";
}

// Of runs whose files are whole.
std::map<std::string, Curves> curves_of(const std::vector<const Record*>& records,
                                        const std::string& headline) {
  std::vector<std::string> problems;
  const auto curves = bnlab::curves_of(records, headline, problems);
  EXPECT_TRUE(problems.empty());
  return curves;
}

TEST(Curves, GatherTheSeedsOfEachStep) {
  const TemporaryFolder folder;
  const Record a = with_log(folder.path() / "a", 0, Status::ok,
                            train(10, 2) + train(20, 1) + eval(20, "saved", 0.5) + eval(20, "batch", 0.9));
  const Record b = with_log(folder.path() / "b", 1, Status::ok, train(10, 4));
  auto curves = curves_of({&a, &b}, "mean_iou");
  ASSERT_EQ(curves.at("train_loss").points.size(), 2u);
  EXPECT_EQ(curves.at("train_loss").points[0].step, 10);
  EXPECT_EQ(curves.at("train_loss").points[0].values, (std::vector<double>{2, 4}));
  EXPECT_EQ(curves.at("train_loss").points[1].values, (std::vector<double>{1}));
  ASSERT_EQ(curves.at("mean_iou").points.size(), 1u);
  EXPECT_EQ(curves.at("mean_iou").points[0].values, (std::vector<double>{0.5}));
  EXPECT_EQ(curves.at("batch.mean_iou").points[0].values, (std::vector<double>{0.9}));
  EXPECT_EQ(curves.at("gradient_norm").points[0].values, (std::vector<double>{20, 40}));
}

TEST(Curves, KeepFailedRunsApart) {
  const TemporaryFolder folder;
  const Record failed = with_log(folder.path() / "a", 3, Status::diverged, train(10, 2));
  const auto curves = curves_of({&failed}, "mean_iou");
  EXPECT_TRUE(curves.at("train_loss").points.empty());
  ASSERT_EQ(curves.at("train_loss").failed.size(), 1u);
  EXPECT_EQ(curves.at("train_loss").failed[0].seed, 3u);
  EXPECT_EQ(curves.at("train_loss").failed[0].values, (std::map<int64_t, double>{{10, 2}}));
}

TEST(Curves, ComeFromTheRecordWhereThereIsNoLog) {
  const TemporaryFolder folder;
  const Record record(synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json(),
                      folder.path() / "record.json");
  const auto curves = curves_of({&record}, "mean_iou");
  EXPECT_EQ(curves.at("train_loss").points[0].step, 100);
  EXPECT_EQ(curves.at("train_loss").points[0].values, (std::vector<double>{0.8}));
  EXPECT_EQ(curves.at("mean_iou").points[0].values, (std::vector<double>{0.5}));
}

TEST(Curves, LeaveOutALastLineThatWasCutOffAndTellOfAnyOther) {
  const TemporaryFolder folder;
  const Record cut = with_log(folder.path() / "a", 0, Status::ok, train(10, 2) + R"({"kind": "train", "st)");
  EXPECT_EQ(curves_of({&cut}, "mean_iou").at("train_loss").points.size(), 1u);
  const Record broken = with_log(folder.path() / "b", 0, Status::ok,
                                 R"({"kind": "train", "st)"
                                 "\n" +
                                     train(10, 2));
  std::vector<std::string> problems;
  const auto curves = bnlab::curves_of({&broken}, "mean_iou", problems);
  EXPECT_EQ(curves.at("train_loss").points.at(0).step, 100) << "as the record has it";
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("metrics.jsonl:1: expected a JSON object"), std::string::npos) << problems[0];
}

Record with_final(const RunSpec& run, const Json& metrics) {
  RunAccount account = synthetic_account(run, 0.5, 1);
  account.result["final"] = {{"saved", metrics}};
  return Record(compose_record(account), "record.json");
}

TEST(FinalMetrics, AreAllNumbersOfEverySeedUnderTheirPaths) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const double score = run.seed == 0 ? 0.25 : 0.75;
    records.push_back(with_final(run, {{"mean_iou", 0.5},
                                       {"class_iou", {score, nullptr}},
                                       {"groups", {{"dusk.1", {{"mean_iou", score}}}}}}));
  }
  const Json json = report_json(make_report(experiment, records));
  const Json& saved = json.at("cells").at(0).at("metrics").at("saved");
  EXPECT_EQ(saved.at("groups/dusk.1/mean_iou").at("n"), 2);
  EXPECT_DOUBLE_EQ(saved.at("groups/dusk.1/mean_iou").at("mean").get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(saved.at("class_iou/0").at("seeds").at(1).at("value").get<double>(), 0.75);
  EXPECT_FALSE(saved.contains("class_iou/1")) << "a class that no label has";
}

TEST(FinalMetrics, AreNoneOfRunsThatFailed) {
  Json json = synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json();
  json["outcome"]["status"] = name(Status::diverged);
  const Record failed(json, "record.json");
  EXPECT_TRUE(final_metrics_of({&failed}).empty());
}

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
