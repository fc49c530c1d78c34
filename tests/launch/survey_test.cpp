#include <gtest/gtest.h>

#include <fstream>

#include "harness/launch/survey.hpp"

#include "harness/launch/disk_space.hpp"
#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::survey_test {
namespace {

namespace fs = std::filesystem;
using test::behaves;
using test::run;
using test::Scratch;

std::string message_of(const std::string& spec, const LaunchRequest& options) {
  try {
    run(spec, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Survey, FailuresOfEarlierCallsAreCountedAgain) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("refuse"), R"(, "matrix": {"seed": [0, 1]})");
  run(spec, scratch.options(1));
  const LaunchSummary again = run(spec, scratch.options(1));
  EXPECT_EQ(again.failed, 0);
  EXPECT_EQ(again.skipped, 2);
  EXPECT_EQ(again.failed_before, 2);
}

TEST(Survey, MoreDiskIsNeverLeftThanThereIsAndNeverLessNeededThanThereMustBe) {
  EXPECT_EQ(mib_left(1.9 * (1 << 20)), "1 MiB");
  EXPECT_EQ(mib_needed(1.1 * (1 << 20)), "2 MiB");
  EXPECT_EQ(mib_left(3 << 20), mib_needed(3 << 20));
}

TEST(Survey, AFullDiskIsOneThatHasLessThanRunsNeed) {
  const double mib = 1 << 20;
  EXPECT_TRUE(is_disk_full(63 * mib, std::nullopt));
  EXPECT_FALSE(is_disk_full(64 * mib, std::nullopt));
  EXPECT_FALSE(is_disk_full(20 * mib, 2 * mib));
  EXPECT_TRUE(is_disk_full(mib, 2 * mib));
  EXPECT_FALSE(is_disk_full(100 * mib, 500 * mib)) << "a guess";
}

TEST(Survey, RedoTakesWordsAndIds) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  LaunchRequest options = scratch.options(1);
  run(spec, options);
  options.redo = {scratch.records().at(1).run_id()};
  EXPECT_EQ(run(spec, options).finished, 1);
  options.redo = {"failed", "stale"};
  EXPECT_EQ(run(spec, options).finished, 0);
  options.redo = {"all"};
  EXPECT_EQ(run(spec, options).finished, 2);
  options.redo = {"stael"};
  EXPECT_TRUE(has(message_of(spec, options), "did you mean stale?")) << message_of(spec, options);
}

TEST(Survey, ADisturbedRunIsToldAndTimedAgainWhereThatIsAsked) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  LaunchRequest options = scratch.options(1);
  EXPECT_EQ(run(spec, options).disturbed, 0);
  Json record = scratch.records().at(0).json();
  record["result"]["timing"] = {{"disturbed", true}};
  write_json(scratch.records().at(0).file(), record);
  EXPECT_EQ(run(spec, options).disturbed, 1);
  options.redo = {"disturbed"};
  EXPECT_EQ(run(spec, options).finished, 1);
  EXPECT_EQ(run(spec, options).disturbed, 0);
}

TEST(Survey, AnInterruptedRunStartsAgainByItself) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  Json record = scratch.records().at(0).json();
  record["outcome"]["status"] = "interrupted";
  write_json(scratch.records().at(0).file(), record);
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 1);
}

TEST(Survey, WhatAKilledProcessLeftBesideAFinishedRunIsRemoved) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  const fs::path record = scratch.records().at(0).file(), folder = record.parent_path();
  const std::string text = read_text(record);
  scratch.leave_attempts(folder, 2);
  fs::create_directories(attempt_folder(folder, 1));
  std::ofstream(claim_file(folder, 3)) << R"({"host": "another", "pid": 7})";  // just now: it may live
  EXPECT_EQ(run(spec, scratch.options(1)).skipped, 1);
  EXPECT_EQ(claims_of(folder).size(), 3U);
  fs::remove(claim_file(folder, 3));
  EXPECT_EQ(run(spec, scratch.options(1)).skipped, 1);
  EXPECT_TRUE(claims_of(folder).empty());
  EXPECT_TRUE(attempt_folders_of(folder).empty());
  EXPECT_EQ(read_text(record), text);
}

TEST(Survey, AKilledAttemptElsewhereAtARunThatIsDoneIsRemovedWhereAnyPlacementWillDo) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  const fs::path elsewhere = scratch.records().at(0).file().parent_path().parent_path() / "2x1-cpu";
  scratch.leave_attempts(elsewhere, 1);
  fs::create_directories(attempt_folder(elsewhere, 1) / kCheckpointsFolder);
  EXPECT_EQ(run(spec, scratch.options(1)).skipped, 1);
  EXPECT_EQ(claims_of(elsewhere).size(), 1U) << "--ranks 1 says nothing of two";
  LaunchRequest anywhere = scratch.options(0);
  anywhere.device.reset();
  EXPECT_EQ(run(spec, anywhere).skipped, 1);
  EXPECT_TRUE(claims_of(elsewhere).empty());
  EXPECT_TRUE(attempt_folders_of(elsewhere).empty());
}

TEST(Survey, AKilledAttemptWhereRunsWereStartedLastIsRemovedToo) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  const fs::path done = scratch.records().at(0).file().parent_path();
  const fs::path elsewhere = done.parent_path() / "2x1-cpu";
  write_json(scratch / (std::string("results/fake/") + kPlacementFile),
             Json{{"ranks", 2}, {"device", "cpu"}, {"exchange", nullptr}});
  LaunchRequest anywhere = scratch.options(0);
  anywhere.device.reset();
  for (const bool has_ended : {false, true}) {
    scratch.leave_attempts(elsewhere, 1);
    fs::create_directories(attempt_folder(elsewhere, 1));
    if (has_ended) {  // killed between its record and its last step
      Json record = read_json(done / kRecordFile);
      record["placement"]["name"] = "2x1-cpu";
      write_json(attempt_folder(elsewhere, 1) / kRecordFile, record);
    }
    EXPECT_EQ(run(spec, anywhere).skipped, 1);
    EXPECT_TRUE(claims_of(elsewhere).empty());
    EXPECT_TRUE(attempt_folders_of(elsewhere).empty());
    EXPECT_EQ(fs::exists(elsewhere / kRecordFile), has_ended) << "a result is never removed";
  }
}

TEST(Survey, RunsThatCannotBeWhereTheyArePlacedAreToldBeforeAnyStarts) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "average_weights_every": 2)");
  try {
    run(spec, scratch.options(1));
    ADD_FAILURE() << "it started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "average_weights_every: expected one tower per rank, got 2; use --ranks 2");
    EXPECT_EQ(error.kind(), Error::Kind::usage);
  }
  EXPECT_TRUE(scratch.records().empty());
  EXPECT_EQ(run(spec, scratch.options(2)).finished, 1);
}

// What may lie where a record is expected, and what is said of it.
struct Damage {
  std::string text, said;
};

class DamagedRecord : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedRecord, IsToldAndItsRunStartsAgain) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  std::ofstream(scratch.records().at(0).file()) << GetParam().text;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(said, GetParam().said) && has(said, "starts again")) << said;
  EXPECT_EQ(scratch.records().at(0).status(), Status::ok);
}

INSTANTIATE_TEST_SUITE_P(All, DamagedRecord,
                         ::testing::Values(Damage{"", "no JSON"}, Damage{R"({"kind": "bnl)", "no JSON"},
                                           Damage{"[1, 2]", "schema"},
                                           Damage{"{\"kind\":" + std::string(100000, '[') +
                                                      std::string(100000, ']') + "}",
                                                  "nested deeper than"}));

TEST(Survey, TheRecordOfAnotherRunDoesNotCount) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  run(spec, scratch.options(1));
  const fs::path first = scratch.records().at(0).file(), second = scratch.records().at(1).file();
  fs::copy_file(first, second, fs::copy_options::overwrite_existing);
  EXPECT_EQ(scratch.records().size(), 1U);  // nor is it shown twice
  const LaunchSummary summary = run(spec, scratch.options(1));
  EXPECT_EQ(summary.skipped, 1);
  EXPECT_EQ(summary.finished, 1);
  EXPECT_EQ(scratch.records().at(1).seed(), 1U);
}

TEST(Survey, ARecordWhoseSpecWasAlteredDoesNotCount) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(1));
  Json record = scratch.records().at(0).json();
  record["spec"]["log_every"] = 7;  // which changes no result
  write_json(scratch.records().at(0).file(), record);
  EXPECT_EQ(run(spec, scratch.options(1)).skipped, 1);
  record["spec"]["steps"] = 11;
  write_json(scratch.records().at(0).file(), record);
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 1);
}

TEST(Survey, AnotherCodeMakesARunStaleWithTheReason) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  LaunchRequest options = scratch.options(1);
  run(spec, options);
  Json record = scratch.records().at(0).json();
  record["code"]["numerics"]["base"] = "0123456789abcdef";
  write_json(scratch.records().at(0).file(), record);
  const LaunchSummary summary = run(spec, options);
  ASSERT_EQ(summary.stale.size(), 1U);
  EXPECT_EQ(summary.stale.begin()->first, "what computes it has changed since: base");
  options.redo = {"stale"};
  EXPECT_EQ(run(spec, options).finished, 1);
  EXPECT_TRUE(run(spec, options).stale.empty());
}

class OnFiles : public ::testing::Test {
 protected:
  OnFiles() {
    write(scratch_ / "data/files/a", "one");
    write(scratch_ / "data/files/b", "two");
    options_.data_dir = scratch_ / "data";
  }

  Scratch scratch_;
  LaunchRequest options_ = scratch_.options(1);
  std::string spec_ = scratch_.write_spec(R"("on_files")", R"(, "matrix": {"seed": [0, 1]})");
};

TEST_F(OnFiles, TheRecordHoldsAFingerprintOfTheData) {
  run(spec_, options_);
  const Json data = scratch_.records().at(0).at("inputs.data");
  EXPECT_EQ(data.at("files"), 2);
  EXPECT_EQ(data.at("bytes"), 6);
  EXPECT_EQ(data.at("fingerprint").get<std::string>().size(), 16U);
}

TEST_F(OnFiles, OtherDataMakeRunsStaleWhereverTheyLie) {
  run(spec_, options_);
  fs::copy(scratch_ / "data", scratch_ / "same", fs::copy_options::recursive);
  options_.data_dir = scratch_ / "same";
  EXPECT_TRUE(run(spec_, options_).stale.empty());
  write(scratch_ / "other/files/a", "two");  // the same names and sizes
  write(scratch_ / "other/files/b", "one");
  options_.data_dir = scratch_ / "other";
  const LaunchSummary summary = run(spec_, options_);
  EXPECT_EQ(summary.finished, 0);
  ASSERT_EQ(summary.stale.size(), 1U);
  EXPECT_TRUE(has(summary.stale.begin()->first, "the data have changed since"))
      << summary.stale.begin()->first;
  EXPECT_TRUE(scratch_.records().at(0).stale());  // reports see it without the data
  options_.redo = {"stale"};
  EXPECT_EQ(run(spec_, options_).finished, 2);
  EXPECT_FALSE(scratch_.records().at(0).stale());
  EXPECT_EQ(run(spec_, options_).finished, 0);
}

TEST_F(OnFiles, EveryChangeOfAFileIsSeen) {
  run(spec_, options_);
  const auto change = [&](const std::string& name, const std::string& text) {
    write(scratch_ / ("data/files/" + name), text);
    const bool seen = !run(spec_, options_).stale.empty();
    write(scratch_ / "data/files/a", "one");
    fs::remove(scratch_ / "data/files/c");
    return seen;
  };
  EXPECT_TRUE(change("a", "uno"));
  EXPECT_TRUE(change("a", "one more"));
  EXPECT_TRUE(change("c", ""));
  EXPECT_FALSE(change("a", "one"));
}

TEST_F(OnFiles, WithoutTheDataNothingStartsAndOneMessageSaysSo) {
  options_.data_dir = "";
  const std::string message = message_of(spec_, options_);
  EXPECT_TRUE(has(message, "2 of 2 runs to start")) << message;
  EXPECT_TRUE(has(message, "say --data DIR")) << message;
  EXPECT_TRUE(scratch_.records().empty());
}

TEST_F(OnFiles, AllThatIsWrongWithTheDataIsToldBeforeAnythingStarts) {
  write(scratch_ / "data/files/a", "bad");
  write(scratch_ / "data/files/b", "bad");
  const std::string message = message_of(spec_, options_);
  EXPECT_TRUE(has(message, "task on_files: 2 faults in the data, nothing has started")) << message;
  EXPECT_TRUE(has(message, "data/files/a: bad")) << message;
  EXPECT_TRUE(has(message, "data/files/b: bad")) << message;
  EXPECT_TRUE(scratch_.records().empty());
  write(scratch_ / "data/files/a", "good");
  write(scratch_ / "data/files/b", "good");
  EXPECT_EQ(run(spec_, options_).finished, 2);
}

TEST_F(OnFiles, WhatWasJudgedIsKeptUntilTheDataChange) {
  run(spec_, options_);
  const fs::path kept = scratch_ / "results/.data_checks";
  Json answers = read_json(kept);
  ASSERT_EQ(answers["reports"].size(), 1U);
  answers["reports"].front()["faults"] = {{{"kind", "kept"}, {"message", "as it was kept"}}};
  write_json(kept, answers);
  options_.redo = {"all"};
  EXPECT_TRUE(has(message_of(spec_, options_), "as it was kept"));
  write(scratch_ / "data/files/a", "more than one");
  EXPECT_EQ(run(spec_, options_).finished, 2);
  EXPECT_EQ(read_json(kept)["reports"].size(), 2U);
  write(kept, "nonsense");
  EXPECT_EQ(run(spec_, options_).finished, 2);
}

// The task of these runs always finds the fact "looked".
TEST_F(OnFiles, FactsOfTheDataStandInTheRecords) {
  run(spec_, options_);
  const std::vector<Record> records = scratch_.records();
  ASSERT_EQ(records.size(), 2U);
  for (const Record& record : records) {
    EXPECT_EQ(record.at("notes").at(0), "looked");
    EXPECT_EQ(record.at("notes").at(1),
              "the training set has 1 samples and a global batch 4: every step sees samples twice");
  }
}

TEST_F(OnFiles, FinishedRunsNeedNoData) {
  run(spec_, options_);
  options_.data_dir = "";
  EXPECT_EQ(run(spec_, options_).skipped, 2);
}

TEST_F(OnFiles, HashesAreKeptAndMayBeLost) {
  run(spec_, options_);
  const Json before = scratch_.records().at(0).at("inputs");
  write(scratch_ / "results/.hashes", "nonsense\n\n1 2 3");
  options_.redo = {"all"};
  EXPECT_EQ(run(spec_, options_).finished, 2);
  EXPECT_EQ(scratch_.records().at(0).at("inputs"), before);
}

TEST(Weights, AreKnownByTheirContent) {
  const Scratch scratch;
  const std::string weights = scratch / "w.safetensors";
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "init_from": {"file": ")" + weights + "\"}");
  EXPECT_TRUE(has(message_of(spec, scratch.options(1)), weights)) << message_of(spec, scratch.options(1));
  std::ofstream(weights) << "no tensors";
  EXPECT_TRUE(has(message_of(spec, scratch.options(1)), "expected a safetensors file"));
  const std::string begin = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  std::ofstream(weights) << begin << "some";
  run(spec, scratch.options(1));
  EXPECT_TRUE(run(spec, scratch.options(1)).stale.empty());
  std::ofstream(weights) << begin << "else";
  const LaunchSummary summary = run(spec, scratch.options(1));
  ASSERT_EQ(summary.stale.size(), 1U);
  EXPECT_TRUE(has(summary.stale.begin()->first, "weights of init_from")) << summary.stale.begin()->first;
}

TEST(Weights, EachSeedHasAFileOfItsOwnAndIsStaleAlone) {
  const Scratch scratch;
  const std::string begin = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  const auto spec =
      scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [7, 8]}, "init_from": {"file": ")" +
                                            (scratch / "net{seed}-*/w.safetensors") + "\"}");
  write(scratch / "net7-a1/w.safetensors", begin + "some");
  EXPECT_TRUE(has(message_of(spec, scratch.options(1)), "expected one file of this name")) << "none for 8";
  write(scratch / "net8-b2/w.safetensors", begin + "more");
  EXPECT_EQ(run(spec, scratch.options(1)).finished, 2);
  write(scratch / "net8-b2/w.safetensors", begin + "else");
  const LaunchSummary summary = run(spec, scratch.options(1));
  ASSERT_EQ(summary.stale.size(), 1U);
  EXPECT_EQ(summary.stale.begin()->second, 1);
  write(scratch / "net7-b3/w.safetensors", begin + "some");
  LaunchRequest again = scratch.options(1);
  again.redo = {"all"};
  EXPECT_TRUE(has(message_of(spec, again), "expected one file of this name")) << "two for 7";
}

class DiskNeed : public ::testing::Test {
 protected:
  // A finished run of a model whose folder holds so many bytes, some of them weights.
  Record finished(RunSpec run, int base, size_t bytes, int64_t weights) {
    run.resolved["model"]["base"] = base;
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.result["memory"]["weights_bytes"] = weights;
    const auto folder = folder_.path() / std::to_string(folders_++);
    std::filesystem::create_directories(folder / "checkpoints");
    std::ofstream(folder / "weights.safetensors") << std::string(bytes, 'x');
    return Record(compose_record(account), folder / "record.json");
  }
  static RunSpec asked(int base, int64_t checkpoint_every = 0) {
    RunSpec run = synthetic_run("sync", 8, 2, 0);
    run.resolved["model"]["base"] = base;
    run.checkpoint_every = checkpoint_every;
    return run;
  }
  TemporaryFolder folder_;
  int folders_ = 0;
};

TEST_F(DiskNeed, IsThatOfFinishedRunsOfTheSameModel) {
  const RunSpec run = synthetic_run("sync", 8, 2, 0);
  const std::vector<Record> records = {finished(run, 8, 1000, 800), finished(run, 8, 3000, 800),
                                       finished(run, 16, 8000, 6000),
                                       synthetic_failure(run, Status::crashed, 1)};
  const RunSpec small = asked(8), large = asked(16), unknown = asked(64);
  EXPECT_EQ(disk_need({&small, &small}, records, 1), 4000);
  EXPECT_EQ(disk_need({&small, &large}, records, 1), 10000);
  EXPECT_EQ(disk_need({&unknown}, records, 1), 4000) << "the mean of all";
  EXPECT_EQ(disk_need({&small}, {}, 1), std::nullopt);
  EXPECT_EQ(disk_need({}, records, 1), 0);
}

TEST_F(DiskNeed, CountsCheckpointsOfTheLargestRunsThatGoSideBySide) {
  const RunSpec run = synthetic_run("sync", 8, 2, 0);
  const std::vector<Record> records = {finished(run, 8, 1000, 600), finished(run, 8, 1000, 1000),
                                       finished(run, 16, 8000, 6000)};
  const RunSpec small = asked(8, 100), large = asked(16, 100), without = asked(16);
  EXPECT_EQ(disk_need({&small, &large, &without}, records, 1), 17000 + 9 * 6000);
  EXPECT_EQ(disk_need({&small, &large, &without}, records, 8), 17000 + 9 * 6000 + 9 * 800);
}

}  // namespace
}  // namespace bnlab::survey_test
