// Ranks that make one run of a matrix after the other, and when they do not.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "harness/launch/rank_job.hpp"
#include "harness/launch/rank_processes.hpp"
#include "harness/store/run_folder.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

using test::behaves;
using test::eventually;
using test::run;
using test::Scratch;

const std::string kFourSeeds = R"(, "matrix": {"seed": [0, 1, 2, 3]})";

std::string folder_of(const Record& record) {
  return record.file().parent_path().string();
}

// The process that was this rank of the run.
pid_t process_of(const Record& record, int rank) {
  pid_t id = 0;
  std::ifstream(folder_of(record) + "/pid" + std::to_string(rank)) >> id;
  return id;
}

// The processes of rank 0 of the runs, each counted once.
std::set<pid_t> processes_of(const std::vector<Record>& records) {
  std::set<pid_t> all;
  for (const Record& record : records) all.insert(process_of(record, 0));
  return all;
}

TEST(StayingRanks, MakeOneRunAfterTheOtherInTheirWorldAndEachHasItsLog) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("say"), kFourSeeds), scratch.options(2));
  const auto records = scratch.records();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(processes_of(records).size(), 1U);
  for (const Record& record : records) {
    const auto seed = static_cast<int>(record.seed());
    EXPECT_EQ(record.at("placement.runs_before"), seed);
    EXPECT_EQ(record.at("result.seen.in_kept_world"), seed > 0);
    EXPECT_EQ(record.at("result.seen.prefix"), record.run_id());
    for (const int rank : {0, 1}) {
      EXPECT_EQ(read_text(log_file(folder_of(record), rank)), "seed " + std::to_string(seed) + "\n");
      EXPECT_EQ(process_of(record, rank), process_of(records[0], rank));
    }
  }
  for (const int rank : {0, 1})
    EXPECT_NE(kill(process_of(records[0], rank), 0), 0) << "rank " << rank << " is left";
}

TEST(StayingRanks, FreshOnesWhereTheUserAsksForThem) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(1);
  options.fresh_ranks = true;
  run(scratch.write_spec(behaves("ok"), kFourSeeds), options);
  EXPECT_EQ(processes_of(scratch.records()).size(), 4U);
  for (const Record& record : scratch.records()) {
    EXPECT_EQ(record.at("placement.runs_before"), 0);
    EXPECT_EQ(record.at("result.seen.in_kept_world"), false);
  }
}

TEST(StayingRanks, OnGpusToo) {
  const Scratch scratch;
  setenv("FAKE_GPUS", "1", 1);
  LaunchRequest options = scratch.options(1);
  options.device = Device::cuda;
  run(scratch.write_spec(behaves("ok"), kFourSeeds), options);
  unsetenv("FAKE_GPUS");
  EXPECT_EQ(processes_of(scratch.records()).size(), 1U);
}

TEST(StayingRanks, FreshOnesAfterARunWithoutAResultAndTheSameAfterADivergence) {
  for (const std::string first : {"diverge", "kill", "exit", "stop", "refuse"}) {
    SCOPED_TRACE(first);
    const Scratch scratch;
    const std::string two = R"(, "matrix": {"task": [{"name": "fake", "behaviour": ")" + first +
                            R"("}, {"name": "fake", "behaviour": "say"}]})";
    EXPECT_EQ(run(scratch.write_spec(behaves("ok"), two), scratch.options(2)).finished, 1);
    const auto records = scratch.records();
    ASSERT_EQ(records.size(), 2U);
    const bool same = first == "diverge";
    for (const int rank : {0, 1})
      EXPECT_EQ(process_of(records[0], rank) == process_of(records[1], rank), same);
    const Record& good = records[records[0].status() == Status::ok ? 0 : 1];
    EXPECT_EQ(good.at("placement.runs_before"), same ? 1 : 0);
    EXPECT_EQ(read_text(log_file(folder_of(good), 1)), "seed 0\n");
  }
}

TEST(StayingRanks, FreshOnesAfterARunThatEndedWellAndLeftItsWorld) {
  const Scratch scratch;
  const std::string two = R"(, "matrix": {"task": [{"name": "fake", "behaviour": "leave the world"},
                                                   {"name": "fake", "behaviour": "say"}]})";
  EXPECT_EQ(run(scratch.write_spec(behaves("ok"), two), scratch.options(2)).finished, 2);
  EXPECT_EQ(processes_of(scratch.records()).size(), 2U);
  for (const Record& record : scratch.records()) {
    EXPECT_EQ(record.at("placement.runs_before"), 0);
    EXPECT_EQ(record.at("result.seen.in_kept_world"), false);
  }
}

TEST(StayingRanks, OthersWhereARunAsksForAnotherPlace) {
  const Scratch scratch;
  const std::string places = R"(, "towers": 2, "matrix": {"seed": [0, 1], )"
                             R"("placement": [{"ranks": 1}, {"ranks": 2, "threads": 3}]})";
  EXPECT_EQ(run(scratch.write_spec(behaves("ok"), places), scratch.options(0)).finished, 4);
  for (const Record& record : scratch.records()) {
    EXPECT_EQ(record.at("placement.runs_before"), 0) << record.run_id();
    EXPECT_EQ(record.at("result.seen.size"), record.ranks());
    EXPECT_EQ(record.at("result.seen.omp_threads").get<std::string>(),
              std::to_string(record.at("placement.threads_per_rank").get<int>()));
  }
}

TEST(StayingRanks, OfRunsSideBySideEachHaveTheirOwn) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(1);
  options.jobs = 2;
  run(scratch.write_spec(behaves("linger"), kFourSeeds), options);
  EXPECT_EQ(processes_of(scratch.records()).size(), 2U);
}

TEST(StayingRanks, WaitNoLongerOnceOneOfThemHasDied) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  run(spec, scratch.options(2));
  const std::string folder = folder_of(scratch.records().at(0));
  Json job = read_json(job_file(folder));
  job["run_dir"] = folder;  // it was written for the attempt's folder
  write_json(job_file(folder), job);
  const RanksPlace place{
      .ranks = 2, .exchange = Exchange::shared_memory, .timeout = {}, .settings = {}, .gpus = {}};
  RankProcesses ranks(place, scratch.options(2).program, folder, /*stay=*/true);
  const auto all_ended = [&] { return ranks.poll(0) && ranks.poll(1); };
  ASSERT_TRUE(eventually(all_ended));
  EXPECT_TRUE(ranks.wait_for_a_run());
  ranks.start(folder);
  EXPECT_FALSE(ranks.wait_for_a_run());
  ASSERT_TRUE(eventually(all_ended));
  EXPECT_EQ(ranks.runs_before(), 1);
  kill(process_of(scratch.records().at(0), 1), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !ranks.wait_for_a_run(); }));
}

}  // namespace
}  // namespace bnlab
