#include "harness/launch/placing.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

class Placing : public ::testing::Test {
 protected:
  PlacedRun place(const std::string& more, int gpus, int cores = 8) {
    const Experiment experiment = load_experiment(scratch_.write_spec(test::behaves("ok"), more));
    facts_.gpus = [=] { return gpus; };
    facts_.cores = cores;
    return place_runs(experiment, experiment.runs, request_, facts_, remarks_).at(0);
  }

  static constexpr const char* kSixTowers = R"(, "matrix": {"towers": [6]})";
  test::Scratch scratch_;
  LaunchRequest request_;
  WorldFacts facts_;
  std::vector<std::string> remarks_;
};

TEST_F(Placing, WithoutAGpuThereIsOneRankOnTheCpu) {
  EXPECT_EQ(place(kSixTowers, 0).placement.name(), "1x6-cpu");
  EXPECT_TRUE(remarks_.empty());
}

TEST_F(Placing, TheDefaultIsOneRankPerGpu) {
  EXPECT_EQ(place(kSixTowers, 3).placement.name(), "3x2-cuda");
}

TEST_F(Placing, RanksAreLoweredToADivisorAloudOnce) {
  request_.ranks = 4;
  EXPECT_EQ(place(R"(, "matrix": {"towers": [6], "seed": [0, 1]})", 0).placement.name(), "3x2-cpu");
  ASSERT_EQ(remarks_.size(), 1U);
  EXPECT_NE(remarks_[0].find("6 towers use 3 ranks"), std::string::npos) << remarks_[0];
}

TEST_F(Placing, MoreRanksThanTowersBecomeOnePerTower) {
  request_.ranks = 16;
  EXPECT_EQ(place(kSixTowers, 0).placement.name(), "6x1-cpu");
}

TEST_F(Placing, TheSpecsPlacementWinsAloud) {
  request_.ranks = 3;
  request_.device = Device::cuda;
  EXPECT_EQ(place(R"(, "placement": {"ranks": 2, "device": "cpu"})", 4).placement.name(), "2x1-cpu");
  EXPECT_EQ(remarks_.size(), 2U);
}

TEST_F(Placing, RanksOfOneHostExchangeThroughSharedMemoryUnlessToldOtherwise) {
  request_.ranks = 2;
  EXPECT_EQ(place(kSixTowers, 0).placement.exchange, Exchange::shared_memory);
  EXPECT_EQ(place(kSixTowers, 0).placement.name(), "2x3-cpu");
  request_.exchange = Exchange::sockets;
  EXPECT_EQ(place(kSixTowers, 0).placement.name(), "2x3-cpu-sockets");
  request_.device = Device::cuda;
  EXPECT_EQ(place(kSixTowers, 2).placement.name(), "2x3-cuda");
  request_ = {};
  EXPECT_EQ(place(kSixTowers, 0).placement.exchange, std::nullopt) << "one rank exchanges nothing";
}

TEST_F(Placing, TheSpecsExchangeWinsAloud) {
  request_.ranks = 2;
  request_.exchange = Exchange::shared_memory;
  EXPECT_EQ(place(R"(, "matrix": {"towers": [6]}, "placement": {"exchange": "sockets"})", 0).placement.name(),
            "2x3-cpu-sockets");
  ASSERT_EQ(remarks_.size(), 1U);
  EXPECT_NE(remarks_[0].find("--exchange shared_memory does not apply"), std::string::npos) << remarks_[0];
}

TEST_F(Placing, SeveralHostsShareNoMemory) {
  request_.ranks = 2;
  facts_.one_host = false;
  EXPECT_EQ(place(kSixTowers, 0).placement.exchange, Exchange::sockets);
  request_.exchange = Exchange::shared_memory;
  EXPECT_THROW(place(kSixTowers, 0), Error);
}

TEST_F(Placing, MoreRanksThanGpusAreRefused) {
  const auto refusal = [&](int ranks, int gpus) -> std::string {
    request_.ranks = ranks;
    request_.device = Device::cuda;
    try {
      place(kSixTowers, gpus);
    } catch (const Error& error) {
      const std::string message = error.what();
      return message.substr(message.find(": ") + 2);
    }
    return "";
  };
  EXPECT_EQ(refusal(3, 2),
            "3 ranks need as many GPUs, and 2 are visible; lower --ranks or give --device cpu");
  EXPECT_EQ(refusal(1, 0), "1 rank needs a GPU, and none is visible; lower --ranks or give --device cpu");
  setenv("FAKE_CUDA", "off", 1);
  EXPECT_EQ(refusal(1, 0),
            "1 rank needs a GPU, and this program was built without its CUDA kernels; BNLAB_CUDA=on "
            "scripts/build.sh release bnlab builds them, or give --device cpu");
  unsetenv("FAKE_CUDA");
}

TEST_F(Placing, RanksMayShareGpusWhereTheUserAllowsIt) {
  request_.ranks = 3;
  request_.device = Device::cuda;
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const PlacedRun run = place(kSixTowers, 1);
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_EQ(run.placement.name(), "3x2-cuda");
  EXPECT_TRUE(run.placement.shared_gpus);
  EXPECT_EQ(run.notes,
            std::vector<std::string>{"3 ranks shared 1 GPU: their speed is not that of as many GPUs"});
}

TEST_F(Placing, RanksOfAnotherLauncherShareGpusWhereTheUserAllowsIt) {
  facts_.ranks = 3;
  EXPECT_THROW(place(kSixTowers, 1), Error);
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const PlacedRun run = place(kSixTowers, 1);
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_TRUE(run.on_gpus() && run.placement.shared_gpus);
}

TEST_F(Placing, ExchangesThatDoNotApplyAreSaid) {
  request_.exchange = Exchange::sockets;
  EXPECT_EQ(place(kSixTowers, 0).placement.exchange, std::nullopt);
  EXPECT_EQ(remarks_, std::vector<std::string>{"--exchange does not apply to runs on one rank"});
}

TEST_F(Placing, RanksThatExchangeOverPeersShareAGpu) {
  request_.exchange = Exchange::peers;
  request_.ranks = 2;
  const PlacedRun run = place(kSixTowers, 1);
  EXPECT_TRUE(run.on_gpus() && run.placement.shared_gpus);
  EXPECT_EQ(run.placement.exchange, Exchange::peers);
  request_.device = Device::cpu;
  EXPECT_THROW(place(kSixTowers, 1), Error);
}

TEST_F(Placing, MoreRanksThanGpusUseTheCpuAloudWhereNoDeviceWasGiven) {
  request_.ranks = 2;
  const PlacedRun run = place(R"(, "matrix": {"towers": [6], "seed": [0, 1]})", 1);
  EXPECT_EQ(run.placement.name(), "2x3-cpu");
  const std::vector<std::string> said{
      "runs with 2 ranks use the CPU, because there is 1 GPU and no --device was given"};
  EXPECT_EQ(remarks_, said);
  EXPECT_EQ(run.notes, said);
  request_.ranks = 1;
  EXPECT_EQ(place(kSixTowers, 1).placement.name(), "1x6-cuda");
}

TEST_F(Placing, ASpecThatAsksForMoreRanksThanGpusUsesTheCpuToo) {
  EXPECT_EQ(place(R"(, "placement": {"ranks": 2})", 1).placement.name(), "2x1-cpu");
  EXPECT_EQ(remarks_.size(), 1U);
}

TEST_F(Placing, CoresAreSharedByRanksAndJobs) {
  request_.ranks = 2;
  request_.jobs = 2;
  EXPECT_EQ(place(kSixTowers, 0, 8).threads, 2);
  EXPECT_EQ(place(kSixTowers, 0, 1).threads, 1);
  request_.threads = 5;
  EXPECT_EQ(place(kSixTowers, 0, 8).threads, 5);
  facts_.threads = 7;  // the user's own word comes before the launcher's
  EXPECT_EQ(place(kSixTowers, 0, 8).threads, 5);
  EXPECT_TRUE(remarks_.empty());
  EXPECT_EQ(place(R"(, "matrix": {"towers": [6]}, "placement": {"threads": 3})", 0, 8).threads, 3);
  EXPECT_EQ(remarks_, std::vector<std::string>{"the spec gives each rank 3 threads; 5, from --threads or the "
                                               "launcher, does not apply"});
}

TEST_F(Placing, AsManyRunsGoSideBySideAsHaveGpusOrCoresOfTheirOwn) {
  Experiment experiment =
      load_experiment(scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1, 2, 3, 4]})"));
  const auto jobs = [&](int gpus, int cores) {
    facts_.gpus = [=] { return gpus; };
    facts_.cores = cores;
    return jobs_side_by_side(experiment, experiment.runs, request_, facts_);
  };
  EXPECT_EQ(jobs(0, 8), 1) << "it was not asked for";
  request_.jobs = kAutoJobs;
  request_.ranks = 2;
  EXPECT_EQ(jobs(8, 4), 4);
  EXPECT_EQ(jobs(3, 4), 1);
  EXPECT_EQ(jobs(0, 8), 4);
  EXPECT_EQ(jobs(0, 1), 1);
  EXPECT_EQ(jobs(0, 100), 5) << "there are no more runs";
  request_.threads = 2;
  EXPECT_EQ(jobs(0, 8), 2);
  EXPECT_EQ(jobs(8, 8), 4);
  for (RunSpec& run : experiment.runs) run.threads = 4;
  EXPECT_EQ(jobs(0, 8), 1);
}

using Gpus = std::vector<int>;

TEST(GpuShares, RunsSideBySideUseAllGpus) {
  GpuShares four(4);
  EXPECT_EQ(four.take(2), (Gpus{0, 1}));
  EXPECT_EQ(four.take(2), (Gpus{2, 3}));
}

TEST(GpuShares, MoreRunsThanGpusShareTheLeastBusyOnes) {
  GpuShares three(3);
  EXPECT_EQ(three.take(2), (Gpus{0, 1}));
  EXPECT_EQ(three.take(2), (Gpus{2, 0}));
  EXPECT_EQ(three.take(3), (Gpus{1, 2, 0}));
}

TEST(GpuShares, MoreRanksThanGpusGoRoundThem) {
  EXPECT_EQ(GpuShares(2).take(3), (Gpus{0, 1, 0}));
}

TEST(GpuShares, ARunThatHasEndedMakesRoom) {
  GpuShares four(4);
  const Gpus first = four.take(2);
  four.take(2);
  four.give_back(first);
  EXPECT_EQ(four.take(2), first);
}

}  // namespace
}  // namespace bnlab
