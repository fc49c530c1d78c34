// This process plays one rank of a world of two; the store is a file (fake_ranks.cpp).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "harness/communicator/host/environment_world.hpp"
#include "harness/launch/launch.hpp"
#include "harness/store/attempts.hpp"
#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class JoinedWorld : public ::testing::Test {
 protected:
  JoinedWorld() { setenv("FAKE_STORE", (scratch_ / "store").c_str(), 1); }
  ~JoinedWorld() override { unsetenv("FAKE_STORE"); }

  LaunchSummary as_rank(int rank, const std::string& spec, int size = 2, bool one_host = true,
                        int local_size = 1) {
    EnvironmentWorld world;
    world.launcher = "torchrun";
    world.rendezvous.rank = rank;
    world.rendezvous.size = size;
    world.one_host = one_host;
    world.local_size = local_size;
    // The other ranks see no results folder of their own.
    LaunchRequest options = scratch_.options(0);
    options.data_dir = data_;
    options.results_dir = rank == 0 ? scratch_ / "results" : scratch_ / "nowhere";
    return launch_in_world(load_experiment(spec), options, world);
  }

  test::Scratch scratch_;
  std::string data_;
};

// Runs of rank 1 only write into the folder that they are told, which rank 0 has made.
TEST_F(JoinedWorld, RankZeroWritesTheRecords) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  const LaunchSummary summary = as_rank(0, spec);
  EXPECT_EQ(summary.finished, 2);
  EXPECT_TRUE(summary.leads);
  ASSERT_EQ(scratch_.records().size(), 2U);
  EXPECT_EQ(scratch_.records()[0].at("placement.launcher"), "torchrun");
  EXPECT_EQ(scratch_.records()[0].placement(), "2x1-cpu");
}

TEST_F(JoinedWorld, FactsOfTheDataStandInTheRecords) {
  fs::create_directories(scratch_ / "data/files");
  std::ofstream(scratch_ / "data/files/one") << "good";
  data_ = scratch_ / "data";
  as_rank(0, scratch_.write_spec(R"({"name": "on_files"})"));
  ASSERT_EQ(scratch_.records().size(), 1U);
  EXPECT_EQ(scratch_.records()[0].at("notes").at(0), "looked");
}

TEST_F(JoinedWorld, TheNextRunWorksInTheWorldOfTheLast) {
  as_rank(0, scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})"));
  std::vector<bool> in_kept_world;
  for (const Record& record : scratch_.records())
    in_kept_world.push_back(record.at("result.seen.in_kept_world"));
  EXPECT_EQ(in_kept_world, (std::vector<bool>{false, true}));
}

TEST_F(JoinedWorld, RanksOfSeveralHostsExchangeThroughSockets) {
  as_rank(0, scratch_.write_spec(test::behaves("ok")), /*size=*/2, /*one_host=*/false);
  EXPECT_EQ(scratch_.records()[0].placement(), "2x1-cpu-2nodes-sockets");
  EXPECT_EQ(scratch_.records()[0].at("placement.exchange"), "sockets");
}

TEST_F(JoinedWorld, TheOtherRanksRunWhatRankZeroChoseAndWriteNoRecord) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  as_rank(0, spec);
  const LaunchSummary same = as_rank(1, spec);  // reads what rank 0 shared: both runs
  EXPECT_EQ(same.finished, 2);
  EXPECT_FALSE(same.leads);
  as_rank(0, spec);
  EXPECT_EQ(as_rank(1, spec).skipped, 2);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "nowhere"));
}

TEST_F(JoinedWorld, ARunThatIsNoneOfThisRanksIsRefused) {
  as_rank(0, scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})"));
  try {
    as_rank(1, scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 2]})"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("seed1"), std::string::npos) << error.what();
  }
}

TEST_F(JoinedWorld, MachinesMayHaveDifferentNumbersOfRanks) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "towers": 4)");
  as_rank(0, spec, /*size=*/4, /*one_host=*/false, /*local_size=*/2);
  EXPECT_EQ(scratch_.records()[0].placement(), "4x1-cpu-2nodes-sockets");
  EXPECT_EQ(as_rank(3, spec, 4, false, /*local_size=*/1).finished, 1);
}

TEST_F(JoinedWorld, ARunThatAnotherProcessHasIsLeftOutByEveryRank) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  const RunSpec first = load_experiment(spec).runs.front();
  const Placement placement{.ranks = 2, .exchange = Exchange::shared_memory};
  const fs::path folder = run_folder(scratch_ / "results", "fake", first.id, placement);
  fs::create_directories(folder.parent_path());
  std::ofstream(claim_file(folder, 1)) << R"({"host": "another", "pid": 7})";  // just now
  const LaunchSummary summary = as_rank(0, spec);
  EXPECT_EQ(summary.held, 1);
  EXPECT_EQ(summary.finished, 1);
  EXPECT_EQ(as_rank(1, spec).finished, 1);
}

TEST_F(JoinedWorld, RunsThatDoNotFitTheWorldAreLeftOut) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"towers": [2, 3]})");
  testing::internal::CaptureStderr();
  EXPECT_EQ(as_rank(0, spec).finished, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("do not divide its 3 towers"), std::string::npos);
}

TEST_F(JoinedWorld, AWorldThatFitsNoRunIsAnError) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "towers": 3)");
  EXPECT_THROW(as_rank(0, spec), Error);
}

TEST_F(JoinedWorld, RanksOfAnotherBuildAreRefused) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  as_rank(0, spec);
  const std::string store = scratch_ / "storeplan";
  Json plan = read_json(store);
  plan["code"]["fingerprint"] = "another";
  write_json(store, plan);
  try {
    as_rank(1, spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("same build"), std::string::npos) << error.what();
  }
}

// A launcher may show each of its ranks one GPU, its own.
TEST_F(JoinedWorld, ARankThatSeesOneGpuTakesIt) {
  setenv("FAKE_GPUS", "1", 1);
  setenv("FAKE_OWN_GPUS", "1", 1);
  EnvironmentWorld world;
  world.rendezvous.size = world.local_size = 2;
  world.rendezvous.local_rank = 1;
  LaunchRequest options = scratch_.options(0);
  options.device = Device::cuda;
  launch_in_world(load_experiment(scratch_.write_spec(test::behaves("ok"))), options, world);
  unsetenv("FAKE_OWN_GPUS");
  unsetenv("FAKE_GPUS");
  ASSERT_EQ(scratch_.records().size(), 1U);
  EXPECT_EQ(scratch_.records()[0].placement(), "2x1-cuda");
  EXPECT_EQ(scratch_.records()[0].at("result.seen.gpu_of_rank_0"), 0);
}

TEST_F(JoinedWorld, FewerGpusThanRanksAreRefusedAndNotLeftAlone) {
  setenv("FAKE_GPUS", "1", 1);
  EnvironmentWorld world;
  world.rendezvous.size = world.local_size = 2;
  LaunchRequest options = scratch_.options(0);
  options.device.reset();
  try {
    launch_in_world(load_experiment(scratch_.write_spec(test::behaves("ok"))), options, world);
    ADD_FAILURE() << "trained on the CPU";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "the 2 ranks of this world see 1 GPU; let each see one of its own (SLURM: --gpus-per-task=1), "
              "start as many ranks as there are GPUs, or give --device cpu");
  }
  unsetenv("FAKE_GPUS");
}

TEST_F(JoinedWorld, LostContactEndsTheMatrixAndIsNoEndOfTheRun) {
  const auto spec = scratch_.write_spec(test::behaves("kill"), R"(, "matrix": {"seed": [0, 1]})");
  EXPECT_THROW(as_rank(0, spec), Error);
  ASSERT_EQ(scratch_.records().size(), 1U);
  EXPECT_EQ(scratch_.records()[0].status(), Status::interrupted);
  const auto message = scratch_.records()[0].at("outcome.message").get<std::string>();
  EXPECT_NE(message.find("attempt 1 of 3"), std::string::npos) << message;
  EXPECT_NE(message.find("; when it ended, rank 0 does not answer; rank 1 "), std::string::npos) << message;
}

TEST_F(JoinedWorld, ARunThatLostContactWaitsForTheOthersAndCrashesTheThirdTime) {
  const auto spec = scratch_.write_spec(test::behaves("kill"), R"(, "matrix": {"seed": [0, 1]})");
  for (int start = 0; start < 6; ++start) {
    EXPECT_THROW(as_rank(0, spec), Error);
    EXPECT_EQ(scratch_.records().size(), start == 0 ? 1U : 2U) << "each has its turn";
  }
  for (const Record& record : scratch_.records()) EXPECT_EQ(record.status(), Status::crashed);
  EXPECT_EQ(as_rank(0, spec).skipped, 2);
}

TEST_F(JoinedWorld, RanksThatNeverMetLeaveNoRecord) {
  const auto spec = scratch_.write_spec(test::behaves("alone"));
  for (int start = 0; start < 4; ++start) EXPECT_THROW(as_rank(0, spec), Error);
  EXPECT_TRUE(scratch_.records().empty());
}

TEST_F(JoinedWorld, ARunWhoseLauncherWasKilledThreeTimesStartsAgain) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  as_rank(0, spec);
  const auto folder = scratch_.records()[0].file().parent_path();
  std::filesystem::remove(folder / kRecordFile);
  scratch_.leave_attempts(folder, 3);
  EXPECT_EQ(as_rank(0, spec).finished, 1);
  EXPECT_TRUE(claims_of(folder).empty());
}

}  // namespace
}  // namespace bnlab
