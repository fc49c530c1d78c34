// results/record.schema.json accepts what compose_record writes, and refuses what it would never write.
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/store/environment.hpp"
#include "tests/store/schema_check.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab::record_schema_test {
namespace {

using Problems = std::vector<std::string>;

Json schema() {
  return read_json("results/record.schema.json");
}  // tests run in the project's root
Json full_record() {
  return synthetic_record(synthetic_run("sync", 8, 2, 0), 0.7, 2).json();
}

TEST(RecordSchema, AcceptsAFinishedRun) {
  EXPECT_EQ(schema_problems(full_record(), schema()), Problems{});
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
  EXPECT_EQ(schema_problems(compose_record(account), schema()), Problems{});
}

TEST(RecordSchema, AcceptsTheShareOfExchanges) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), 0.7, 2);
  account.result["throughput"]["exchange_share"] = 0.25;
  EXPECT_EQ(schema_problems(compose_record(account), schema()), Problems{});
}

TEST(RecordSchema, AcceptsAFailedRun) {
  const Record failed = synthetic_failure(synthetic_run("sync", 8, 2, 0), Status::crashed, 2);
  EXPECT_EQ(schema_problems(failed.json(), schema()), Problems{});
}

TEST(RecordSchema, AcceptsEveryCommittedRecord) {
  int records = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("results")) {
    if (entry.path().filename() == "record.json") {
      EXPECT_EQ(schema_problems(read_json(entry.path().string()), schema()), Problems{}) << entry.path();
      ++records;
    }
  }
  EXPECT_GT(records, 0);
}

TEST(RecordSchema, AcceptsTheEnvironmentOfThisMachine) {
  Json record = full_record();
  record["environment"] = environment_record({{"libtorch", "2.11.0"}});
  EXPECT_EQ(schema_problems(record, schema()), Problems{});
}

TEST(RecordSchema, AcceptsNumbersThatWereNotFinite) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), NAN, 2);
  account.result["train_loss"] = INFINITY;
  EXPECT_EQ(schema_problems(compose_record(account), schema()), Problems{});
}

TEST(RecordSchema, RefusesUnknownKeysMissingKeysAndWrongValues) {
  const auto refuses = [](const char* pointer, const Json& value) {
    Json record = full_record();
    record[Json::json_pointer(pointer)] = value;
    return !schema_problems(record, schema()).empty();
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
  EXPECT_EQ(schema_problems(record, schema()), Problems{"record: lacks \"notes\""});
}

}  // namespace
}  // namespace bnlab::record_schema_test
