// Runs that follow each other in one world leave what runs in worlds of their own leave.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

// Two ranks, threads of this process, that keep their worlds.
class KeptWorlds : public ::testing::TestWithParam<Exchange> {
 protected:
  std::array<RankReport, 2> run(const RunSpec& spec, const std::filesystem::path& folder,
                                std::chrono::seconds timeout = std::chrono::seconds(60)) {
    std::array<RankReport, 2> reports;
    std::array<std::thread, 2> threads;
    ++count_;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads[rank] = std::thread([&, rank] {
        RankJob job;
        job.spec = spec;
        job.rendezvous.rank = static_cast<int>(rank);
        job.rendezvous.size = 2;
        job.rendezvous.port = port_;  // rank 0's store stays, as in a launcher's world
        job.rendezvous.prefix = std::to_string(count_);
        job.rendezvous.exchange = GetParam();
        job.rendezvous.timeout = timeout;
        job.run_dir = folder.string();
        reports[rank] = run_rank(job, &kept_[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return reports;
  }

  void leave_all() {
    std::thread other([this] { shutdown(kept_[1]); });
    shutdown(kept_[0]);
    other.join();
  }

  std::array<const World*, 2> worlds() const { return {kept_[0].world.get(), kept_[1].world.get()}; }

  TrainingRuns runs_in_;
  std::array<KeptWorld, 2> kept_;
  int port_ = LoopbackSocket().port();
  int count_ = 0;
};

std::map<std::string, at::Tensor> weights_in(const std::filesystem::path& folder) {
  std::map<std::string, at::Tensor> tensors;
  for (const NamedTensor& t : read_safetensors((folder / kWeightsFile).string())) tensors[t.name] = t.tensor;
  return tensors;
}

TEST_P(KeptWorlds, ARunAfterAnotherIsAsInAWorldOfItsOwn) {
  const std::array specs{TrainingRuns::spec({{"strategy", "sync"}}),
                         TrainingRuns::spec({{"strategy", "shuffle"}}),
                         // Of which every step is left out of what counts, so that no count begins anew.
                         TrainingRuns::spec({{"strategy", "per_tower"}, {"warmup_steps", 9}})};
  std::array<const World*, 2> first{};
  for (const RunSpec& spec : specs) {
    SCOPED_TRACE(spec.id);
    const auto folder = runs_in_.new_folder();
    const auto reports = run(spec, folder);
    ASSERT_EQ(reports[0].status, Status::ok) << reports[0].message;
    first = first[0] == nullptr ? worlds() : first;
    EXPECT_EQ(worlds(), first);
    const auto alone_in = runs_in_.new_folder();
    const std::vector<RankReport> alone = runs_in_.reports(spec, 2, alone_in);
    expect_equal(weights_in(folder), weights_in(alone_in));
    EXPECT_EQ(reports[0].result.at("communication"), alone[0].result.at("communication"));
  }
  leave_all();
}

TEST_P(KeptWorlds, AfterARefusalAndForAnotherTimeoutTheRanksMeetAnew) {
  const RunSpec good = TrainingRuns::spec({{"strategy", "sync"}});
  RunSpec bad = good;
  bad.strategy["group_size"] = 3;  // of 4 towers: the strategy refuses where it is made
  ASSERT_EQ(run(good, runs_in_.new_folder())[0].status, Status::ok);
  const std::weak_ptr<World> first = kept_[0].world;
  const auto refused = run(bad, runs_in_.new_folder());
  for (const RankReport& report : refused) {
    EXPECT_EQ(report.status, Status::error);
    EXPECT_NE(report.message.find("expected a divisor of the 4 towers"), std::string::npos) << report.message;
    EXPECT_TRUE(report.world_formed);
  }
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(worlds(), (std::array<const World*, 2>{}));

  EXPECT_EQ(run(good, runs_in_.new_folder())[0].status, Status::ok);
  const std::weak_ptr<World> second = kept_[0].world;
  EXPECT_EQ(run(good, runs_in_.new_folder(), std::chrono::seconds(50))[0].status, Status::ok);
  EXPECT_TRUE(second.expired());
  leave_all();
}

TEST(KeptWorld, EachRunHasTheThreadsThatItsJobAsksFor) {
  TrainingRuns runs;
  RankJob job;
  job.spec = TrainingRuns::spec();
  KeptWorld kept;
  const int before = at::get_num_threads();
  for (const int threads : {2, 1, 3}) {
    job.threads = threads;
    job.run_dir = runs.new_folder().string();
    EXPECT_EQ(run_rank(job, &kept).status, Status::ok);
    EXPECT_EQ(at::get_num_threads(), threads);
  }
  shutdown(kept);
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(EveryExchange, KeptWorlds,
                         ::testing::Values(Exchange::shared_memory, Exchange::sockets),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace bnlab
