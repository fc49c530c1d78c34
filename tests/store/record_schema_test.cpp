// results/record.schema.json accepts what compose_record writes, and refuses what it would never write.
// What others have written is read by it, with file and key where it does not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "harness/store/environment.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::record_schema_test {
namespace {

using Problems = std::vector<std::string>;

Problems schema_problems(const Json& record) {
  return misfits(record, record_schema(), Keys::exact);
}
Json full_record() {
  return synthetic_record(synthetic_run("sync", 8, 2, 0), 0.7, 2).json();
}

TEST(RecordSchema, AcceptsAFinishedRun) {
  EXPECT_EQ(schema_problems(full_record()), Problems{});
}

TEST(RecordSchema, AcceptsTimesThatWereTakenInTurns) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), 0.7, 2);
  account.result["timing"] = {{"log_images_per_s", -0.5},
                              {"log_images_per_s_error", 0.01},
                              {"same_log_images_per_s", 0.002},
                              {"same_log_images_per_s_error", 0.01},
                              {"rounds", 2},
                              {"rounds_left_out", 1},
                              {"disturbed", false},
                              {"others", 0.01},
                              {"steal", 0.0},
                              {"load_average", {0.5, 1.9}},
                              {"steps", 500},
                              {"seconds", 10.5},
                              {"step_ms", {20.5, 21.0}},
                              {"against_step_ms", {{12.0, 12.1}, {12.2, 12.0}}}};
  const Json throughput = {
      {"images_per_s", 40.5}, {"step_time_s", {{"median", 0.02}}}, {"steps_measured", 500}};
  account.result["timing"]["with"] = {
      {{"run_id", "sync-8x2"}, {"timing", account.result["timing"]}, {"throughput", throughput}}};
  EXPECT_EQ(schema_problems(compose_record(account)), Problems{});
}

TEST(RecordSchema, AcceptsTheShareOfExchanges) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), 0.7, 2);
  account.result["throughput"]["exchange_share"] = 0.25;
  EXPECT_EQ(schema_problems(compose_record(account)), Problems{});
}

TEST(RecordSchema, AcceptsAFailedRun) {
  const Record failed = synthetic_failure(synthetic_run("sync", 8, 2, 0), Status::crashed, 2);
  EXPECT_EQ(schema_problems(failed.json()), Problems{});
}

TEST(RecordSchema, AcceptsEveryCommittedRecord) {
  int records = 0;
  for (const auto& folder : std::filesystem::directory_iterator("results")) {
    for (const auto& [place, run] : ledger_of(folder.path())->runs) {
      EXPECT_EQ(schema_problems(run.record), Problems{}) << run.line;
      ++records;
    }
  }
  EXPECT_GT(records, 0);
}

TEST(RecordSchema, AcceptsTheEnvironmentOfThisMachine) {
  Json record = full_record();
  record["environment"] = environment_record({{"libtorch", "2.11.0"}});
  EXPECT_EQ(schema_problems(record), Problems{});
}

TEST(RecordSchema, AcceptsNumbersThatWereNotFinite) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), NAN, 2);
  account.result["train_loss"] = INFINITY;
  EXPECT_EQ(schema_problems(compose_record(account)), Problems{});
}

TEST(RecordSchema, RefusesUnknownKeysMissingKeysAndWrongValues) {
  const auto refuses = [](const char* pointer, const Json& value) {
    Json record = full_record();
    record[Json::json_pointer(pointer)] = value;
    return !schema_problems(record).empty();
  };
  EXPECT_TRUE(refuses("/surprise", 1));
  EXPECT_TRUE(refuses("/result/surprise", 1));
  EXPECT_TRUE(refuses("/schema_version", 2));
  EXPECT_TRUE(refuses("/outcome/status", "fine"));
  EXPECT_TRUE(refuses("/placement/ranks", 0));
  EXPECT_TRUE(refuses("/placement/name", "2-cpu"));
  EXPECT_TRUE(refuses("/result/final/saved/mean_iou", "0.7"));
  EXPECT_TRUE(refuses("/result/memory/peak_memory_bytes/0", -1));
  EXPECT_TRUE(refuses("/environment/hostname", "host"));
  Json record = full_record();
  record.erase("notes");
  EXPECT_EQ(schema_problems(record), Problems{"lacks \"notes\""});
}

// Why a file with this text is refused.
std::string refusal(const std::string& text, const Json& schema, Keys keys) {
  const TemporaryFolder folder;
  write_atomically(folder.path() / "f.json", text);
  try {
    read_json(folder.path() / "f.json", schema, keys);
  } catch (const Error& error) {
    return std::string(error.what()).substr((folder.path() / "f.json").string().size());
  }
  return "";
}

TEST(ReadBySchema, NamesTheKeyThatDoesNotFit) {
  const auto of = [](const char* text) { return refusal(text, probe_schema(), Keys::any); };
  EXPECT_EQ(of(R"({"fabric": {"nodes": 1, "else": []}})"), "");
  EXPECT_EQ(of(R"({"fabric": {"nodes": 0}})"), ": fabric.nodes: expected at least 1, got 0");
  EXPECT_EQ(of(R"({"fabric": {"nodes": -1e-308}})"), ": fabric.nodes: expected an integer, got -1e-308");
  EXPECT_EQ(of(R"({"fabric": {"ranks": 4294967296}})"),
            ": fabric.ranks: expected at most 2147483647, got 4294967296");
  EXPECT_EQ(of(R"({"steps": [{"run": "a"}, {"run": 5}]})"), ": steps[1].run: expected a text, got 5");
  EXPECT_EQ(of(R"({"load_before": 1e999})"), " is damaged: a number in it is not finite");
  EXPECT_EQ(refusal(R"({"schema": "bnlab probe 1"})", probe_schema(), Keys::required), ": lacks \"fabric\"");
}

TEST(ReadBySchema, ALongTextTakesNoStack) {
  const Json record = {{"run_id", std::string(1 << 20, 'a')}};
  const Problems found = misfits(record, record_schema(), Keys::exact);
  EXPECT_TRUE(std::ranges::any_of(
      found, [](const std::string& one) { return one.starts_with("run_id: expected a match"); }));
}

}  // namespace
}  // namespace bnlab::record_schema_test
