// Results of older code beside repeats by this build.

#include <gtest/gtest.h>

#include "harness/report/status.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOlder = "0123456789abcdef";

class Confirming : public ::testing::Test {
 protected:
  // A record of a run, by code whose numbers have this hash, or of this build.
  static void save(const fs::path& folder, const RunSpec& run, double mean_iou,
                   const char* fingerprint = nullptr, int ranks = 1, Device device = Device::cpu) {
    RunAccount account = synthetic_account(run, mean_iou, ranks);
    account.placement.device = device;
    account.result["throughput"]["images_per_s"] = fingerprint == nullptr ? 40 : 50;
    account.result["cuda_graph"]["replayed_steps"] = fingerprint == nullptr ? 0 : 7;
    Json record = compose_record(account);
    if (fingerprint != nullptr) record["code"]["numerics"] = {{"base", fingerprint}};
    const fs::path place = run_folder(folder.parent_path(), "small_batch", run.id, account.placement);
    fs::create_directories(place);
    write_json(place / kRecordFile, record);
  }

  static RunSpec run(const std::string& strategy, uint64_t seed) {
    return synthetic_run(strategy, 8, 2, seed);
  }

  RunCounts counts() const { return count_runs(experiment_, list_records(a_.parent_path(), "small_batch")); }

  TemporaryFolder root_;
  const fs::path a_ = root_.path() / "a" / "small_batch", b_ = root_.path() / "b" / "small_batch";
  const Experiment experiment_ = synthetic_experiment(2);
};

TEST_F(Confirming, OneEqualRunStandsForTheOtherSeedsOfItsCell) {
  for (const uint64_t seed : {0, 1}) {
    save(a_, run("sync", seed), 0.5 + 0.1 * static_cast<double>(seed), kOlder);
    save(a_, run("per_tower", seed), 0.4, kOlder);
  }
  EXPECT_EQ(counts().stale, 4);
  save(b_, run("sync", 0), 0.5);
  const Confirmed confirmed = confirm_results(a_, b_);
  EXPECT_EQ(confirmed.repeated, 1);
  EXPECT_TRUE(confirmed.differing.empty());
  EXPECT_EQ(confirmed.covered, 2);
  EXPECT_EQ(confirmed.uncovered, 2);
  EXPECT_EQ(counts().stale, 2);
  EXPECT_EQ(counts().confirmed, 2);
}

TEST(AnswerOfARecord, LacksWhatOlderRecordsLackAndWhatFollows) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 0), 0.5, 1);
  account.result["sites"] = Json::array({{{"name", "norm"}, {"channels", 8}}});
  const Json older = answer_of(Record(compose_record(account), "record.json"));
  account.result["sites"][0]["values_per_image"] = 64;
  account.result["final"]["saved"]["mean_dice"] = 0.5;
  EXPECT_EQ(answer_of(Record(compose_record(account), "record.json")), older);
}

TEST_F(Confirming, WhereAllIsOfTodaysCodeItSaysSo) {
  save(a_, run("sync", 0), 0.5);
  save(b_, run("sync", 0), 0.5);
  try {
    confirm_results(a_, b_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no run is of older code"), std::string::npos) << error.what();
  }
}

TEST_F(Confirming, ARunThatAnswersOtherwiseRefutesItsCell) {
  for (const uint64_t seed : {0, 1}) save(a_, run("sync", seed), 0.5, kOlder);
  save(b_, run("sync", 0), 0.5);
  confirm_results(a_, b_);
  EXPECT_EQ(counts().stale, 0);
  save(b_, run("sync", 1), 0.50001);
  const Confirmed confirmed = confirm_results(a_, b_);
  ASSERT_EQ(confirmed.differing.size(), 1U);
  EXPECT_NE(confirmed.differing.front().find("result.final.saved.mean_iou is 0.5 and 0.50001"),
            std::string::npos);
  EXPECT_EQ(confirmed.covered, 0);
  EXPECT_EQ(counts().stale, 2);
}

TEST_F(Confirming, OfGpusItSaysWhatLastDigitsAreWorth) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    save(a_, run("sync", 0), 0.5, kOlder, 1, device);
    save(b_, run("sync", 0), 0.50001, nullptr, 1, device);
    const Confirmed confirmed = confirm_results(a_, b_);
    const std::string& said = confirmed.differing.back();
    EXPECT_EQ(said.find("a run need not answer the same twice") != std::string::npos,
              said.find("cuda") != std::string::npos)
        << said;
  }
  EXPECT_EQ(confirm_results(a_, b_).differing.size(), 2U);
}

TEST_F(Confirming, HoldsForTheCodeThatWasRepeatedAlone) {
  save(a_, run("sync", 0), 0.5, kOlder);
  save(a_, run("sync", 1), 0.5, "fedcba9876543210");
  save(b_, run("sync", 0), 0.5);
  EXPECT_EQ(confirm_results(a_, b_).covered, 1);
}

TEST_F(Confirming, HoldsForThePlacementAlone) {
  save(a_, run("sync", 0), 0.5, kOlder, 1);
  save(a_, run("sync", 1), 0.5, kOlder, 2);
  save(b_, run("sync", 0), 0.5, nullptr, 1);
  EXPECT_EQ(confirm_results(a_, b_).covered, 1);
}

TEST_F(Confirming, HoldsForThisBuildAlone) {
  save(a_, run("sync", 0), 0.5, kOlder);
  save(b_, run("sync", 0), 0.5);
  confirm_results(a_, b_);
  Json entries = read_json(a_ / kConfirmedFile);
  entries[0]["now"]["numerics"]["base"] = "another";
  write_json(a_ / kConfirmedFile, entries);
  EXPECT_EQ(counts().stale, 1);
}

TEST_F(Confirming, ChangedDataStayAReasonToBeStale) {
  save(a_, run("sync", 0), 0.5, kOlder);
  save(b_, run("sync", 0), 0.5);
  confirm_results(a_, b_);
  Record record = list_records(a_.parent_path(), "small_batch").front();
  ASSERT_TRUE(record.confirmed());
  EXPECT_FALSE(record.stale());
  Json with_inputs = record.json();
  with_inputs["inputs"] = {{"data", {{"files", 1}, {"bytes", 1}, {"fingerprint", "1111111111111111"}}}};
  Record other(with_inputs, record.file());
  other.confirm();
  other.compare_inputs({{"data", {{"files", 1}, {"bytes", 2}, {"fingerprint", "2222222222222222"}}}});
  EXPECT_TRUE(other.stale());
}

TEST_F(Confirming, RepeatsByOtherCodeConfirmNothing) {
  save(a_, run("sync", 0), 0.5, kOlder);
  save(b_, run("sync", 0), 0.5, "fedcba9876543210");
  EXPECT_THROW(confirm_results(a_, b_), Error);
  EXPECT_EQ(counts().stale, 1);
}

TEST_F(Confirming, ADamagedListConfirmsNothing) {
  save(a_, run("sync", 0), 0.5, kOlder);
  for (const char* text : {"[{\"cell\": ", "{}", "[3]", "[{\"cell\": 5}]"}) {
    write_atomically(a_ / kConfirmedFile, text);
    EXPECT_EQ(counts().stale, 1) << text;
  }
}

}  // namespace
}  // namespace bnlab
