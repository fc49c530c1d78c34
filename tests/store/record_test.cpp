#include "harness/store/records.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "harness/store/attempts.hpp"
#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

const RunSpec kRun = synthetic_run("sync", 8, 2, 5);

// Writes the record of `account` where it belongs and returns its folder.
std::filesystem::path save(const std::filesystem::path& results, const RunAccount& account) {
  const auto folder = run_folder(results, account.experiment, account.spec.id, account.placement);
  std::filesystem::create_directories(folder);
  write_json(folder / kRecordFile, compose_record(account));
  return folder;
}

RunAccount ended(Status status) {
  RunAccount account = synthetic_account(kRun, 0.7, 2);
  account.outcome.status = status;
  return account;
}

TEST(Finite, TurnsNaNAndInfinityIntoNullWithANote) {
  std::vector<std::string> notes;
  const Json value = {{"train_loss", NAN}, {"list", {1.5, -INFINITY, INFINITY}}, {"text", "nan"}, {"n", 3}};
  EXPECT_EQ(finite(value, notes, "result"),
            Json({{"train_loss", nullptr}, {"list", {1.5, nullptr, nullptr}}, {"text", "nan"}, {"n", 3}}));
  EXPECT_EQ(notes, (std::vector<std::string>{"result.train_loss was NaN", "result.list[1] was -infinity",
                                             "result.list[2] was +infinity"}));
}

TEST(Record, OfSeveralPlacementsOkCountsFirstThenTodaysCodeThenRealRanksThenTheName) {
  const auto made = [](Status status, int ranks, const char* numerics = nullptr) {
    RunAccount account = synthetic_account(kRun, 0.7, ranks);
    account.outcome.status = status;
    Json record = compose_record(account);
    if (numerics != nullptr) record["code"]["numerics"]["base"] = numerics;
    return Record(record, "record.json");
  };
  const std::vector<Record> order = {
      made(Status::ok, 8),          made(Status::ok, 2),          made(Status::ok, 4),
      made(Status::ok, 8, "older"), made(Status::ok, 1, "older"), made(Status::crashed, 8),
      made(Status::crashed, 1),     made(Status::interrupted, 8),
  };
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = 0; j < order.size(); ++j)
      EXPECT_EQ(counts_before(order[i], order[j]), i < j) << i << " " << j;
}

TEST(Record, NotesWhatWasNotFinite) {
  RunAccount account = ended(Status::diverged);
  account.notes = {"first"};
  account.result["train_loss"] = NAN;
  const Record record(compose_record(account), "record.json");
  EXPECT_TRUE(record.at("result.train_loss").is_null());
  EXPECT_EQ(record.at("notes"), Json({"first", "result.train_loss was NaN"}));
}

TEST(Record, ReadsBackWhatWasWritten) {
  const TemporaryFolder results;
  const auto record = find_record(save(results.path(), ended(Status::ok)));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->experiment(), "small_batch");
  EXPECT_EQ(record->run_id(), kRun.id);
  EXPECT_EQ(record->placement(), "2x4-cpu");
  EXPECT_EQ(record->strategy_label(), "sync");
  EXPECT_EQ(record->seed(), 5u);
  EXPECT_EQ(record->number("result.final.saved.mean_iou"), 0.7);
  EXPECT_EQ(record->number("result.no.such.key"), std::nullopt);
  EXPECT_FALSE(record->throughput_counts());  // four towers per rank are emulated
  EXPECT_FALSE(record->stale());
}

TEST(Record, ARunWhoseTurnsFailedClaimsNoThroughput) {
  RunAccount account = ended(Status::ok);
  account.placement = {8, 1, Device::cpu};
  account.result["timing"] = nullptr;
  EXPECT_TRUE(Record(compose_record(account), "record.json").throughput_counts());
  account.spec.resolved["timing"] = {{"against", "per_tower"}, {"with", "per_tower"}};
  EXPECT_FALSE(Record(compose_record(account), "record.json").throughput_counts());
  account.result["timing"] = {{"turns", 3}};
  EXPECT_TRUE(Record(compose_record(account), "record.json").throughput_counts());
}

TEST(Record, ATemporaryLeftBehindIsNotARecord) {
  const TemporaryFolder results;
  const auto folder = run_folder(results.path(), "small_batch", kRun.id, {2, 4, Device::cpu});
  std::filesystem::create_directories(folder);
  std::ofstream(folder / ".record.json.123.tmp") << "{\"schema_version\": 1, \"kin";
  EXPECT_FALSE(find_record(folder));
  EXPECT_TRUE(list_records(results.path(), "small_batch").empty());
  EXPECT_EQ(run_folders(results.path(), "small_batch").size(), 1u);
}

TEST(Record, IsFreshHoweverTheCodeIsWritten) {
  Json record = compose_record(ended(Status::ok));
  record["code"]["version"] = "another";
  record["code"]["git"] = "a commit that renames a variable";
  record["code"]["fingerprint"] = "0123456789abcdef";
  EXPECT_FALSE(Record(record, "record.json").stale());
}

TEST(Record, IsStaleWhenWhatItDependsOnComputesOtherwise) {
  Json record = compose_record(ended(Status::ok));
  ASSERT_TRUE(record["code"]["numerics"].contains("base"));
  record["code"]["numerics"]["base"] = "0123456789abcdef";
  EXPECT_EQ(Record(record, "record.json").why_stale(), "what computes it has changed since: base");
  record["code"].erase("numerics");
  EXPECT_NE(Record(record, "record.json").why_stale().find("does not say what it was computed with"),
            std::string::npos);
}

TEST(Record, MatchesARunOnThePlacementThatItAsksFor) {
  const Record record = synthetic_record(kRun, 0.7, 2);
  RunSpec run = kRun;
  EXPECT_TRUE(is_of(record, run));
  run.ranks = 4;
  EXPECT_FALSE(is_of(record, run));
  run.ranks = 2;
  EXPECT_TRUE(is_of(record, run));
  run.device = Device::cuda;
  EXPECT_FALSE(is_of(record, run));
}

TEST(Record, NamesTheKeyWhoseValueNobodyCouldUse) {
  const Json good = synthetic_record(synthetic_run("sync", 8, 2, 0), 0.7, 2).json();
  for (const auto& [pointer, value] : {std::pair("/spec/strategy/name", Json(4294967296)),
                                       {"/result/final", Json(5)},
                                       {"/result/sites", Json(Json::array({5}))},
                                       {"/result/history", Json(Json::array({Json{{"step", "x"}}}))},
                                       {"/placement/ranks", Json(uint64_t{1} << 63)},
                                       {"/spec/populations", Json("saved")},
                                       {"/outcome/signal", Json(9)}}) {
    Json record = good;
    record[Json::json_pointer(pointer)] = value;
    std::string key = std::string(pointer).substr(1);
    std::ranges::replace(key, '/', '.');
    try {
      Record(record, "a/record.json");
      FAIL() << key;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("a/record.json: " + key, 0), 0U) << error.what();
    }
  }
}

TEST(ListRecords, ReportsDamagedRecordsAndListsTheRest) {
  const TemporaryFolder results;
  save(results.path(), ended(Status::ok));
  const auto damaged = run_folder(results.path(), "small_batch", "zzz", {1, 8, Device::cpu});
  std::filesystem::create_directories(damaged);
  std::ofstream(damaged / kRecordFile) << R"({"schema_version": 99, "kind": "bnlab.run"})";
  std::vector<std::string> problems;
  EXPECT_EQ(list_records(results.path(), "small_batch", &problems).size(), 1u);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("zzz"), std::string::npos);
  EXPECT_NE(problems[0].find("99"), std::string::npos);
  EXPECT_TRUE(list_records(results.path(), "no_such_experiment").empty());
}

// A run that was timed in the world of another one, and that one.
RunAccount timed_with_others(const std::string& strategy, const Json& with) {
  RunAccount account = synthetic_account(synthetic_run(strategy, 2, 2, 0), 0.5, 2);
  account.spec.resolved["timing"] = {{"against", {{"strategy", "per_tower"}}}, {"with", with}};
  return account;
}

TEST(ListRecords, RunsThatWereTimedInTheWorldOfAnotherHaveItsTimes) {
  const TemporaryFolder results;
  RunAccount host = timed_with_others("per_tower", {{{"strategy", "sync"}}});
  RunAccount guest = timed_with_others("sync", nullptr);
  guest.jobs = 2;  // its training was beside another run, which is not what is timed
  const Json throughput = {{"images_per_s", 80}, {"steps_measured", 500}};
  host.result["timing"] = {{"log_images_per_s", 0.0},
                           {"disturbed", false},
                           {"with",
                            {{{"run_id", guest.spec.id},
                              {"timing", {{"log_images_per_s", -0.25}, {"disturbed", false}}},
                              {"throughput", throughput}}}}};
  const auto of_guest = [&](const std::string& metric) {
    const std::vector<Record> records = list_records(results.path(), "small_batch");
    const auto found = std::ranges::find(records, guest.spec.id, &Record::run_id);
    return metric_of(*found, metric);
  };
  save(results.path(), guest);
  EXPECT_EQ(of_guest("images_per_s"), std::nullopt) << "the times of its own training claim nothing";
  save(results.path(), host);
  EXPECT_EQ(of_guest(kLogImagesPerS), -0.25);
  EXPECT_EQ(of_guest("images_per_s"), 80);
  Json& of_guest_alone = host.result["timing"]["with"][0]["timing"];
  host.result["timing"]["disturbed"] = of_guest_alone["disturbed"] = true;
  save(results.path(), host);
  EXPECT_EQ(of_guest(kLogImagesPerS), std::nullopt);
  host.result["timing"]["disturbed"] = of_guest_alone["disturbed"] = false;
  host.jobs = 2;
  save(results.path(), host);
  EXPECT_EQ(of_guest(kLogImagesPerS), std::nullopt);
}

TEST(ListExperiments, NamesFoldersThatHoldRuns) {
  const TemporaryFolder results;
  save(results.path(), ended(Status::ok));
  std::filesystem::create_directories(results.path() / "figures");
  std::filesystem::create_directories(results.path() / ".trash" / "run" / "1x1-cpu");
  EXPECT_EQ(list_experiments(results.path()), std::vector<std::string>{"small_batch"});

  const std::filesystem::path inner =
      results.path() / "here" / "quickstart";  // an experiment in a results folder below
  std::filesystem::create_directories(inner / "sync-8x2-seed0-0123456789ab" / "1x8-cpu");
  std::ofstream(inner / "spec.json") << "{}";
  EXPECT_EQ(list_experiments(results.path()), std::vector<std::string>{"small_batch"});
  EXPECT_EQ(list_experiments(results.path() / "here"), std::vector<std::string>{"quickstart"});
}

}  // namespace
}  // namespace bnlab
