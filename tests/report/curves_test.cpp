#include "harness/report/curves.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/error.hpp"
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

TEST(Curves, LeaveOutALastLineThatWasCutOffAndRefuseAnyOther) {
  const TemporaryFolder folder;
  const Record cut = with_log(folder.path() / "a", 0, Status::ok, train(10, 2) + R"({"kind": "train", "st)");
  EXPECT_EQ(curves_of({&cut}, "mean_iou").at("train_loss").points.size(), 1u);
  const Record broken = with_log(folder.path() / "b", 0, Status::ok,
                                 R"({"kind": "train", "st)"
                                 "\n" +
                                     train(10, 2));
  try {
    curves_of({&broken}, "mean_iou");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:1: expected a JSON object"), std::string::npos);
  }
}

}  // namespace
}  // namespace bnlab
