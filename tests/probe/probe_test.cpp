// The whole probe, on two ranks that are threads: a file as its schema says, which predictions can be made
// from.
#include "harness/probe/probe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/prediction/validation.hpp"
#include "harness/store/record.hpp"
#include "harness/store/schema.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::probe_test {
namespace {

[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

Json probe_on_two_ranks(const ExchangeDelay& delay, const std::string& keys) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "spec.json";
  std::ofstream(file) << R"({"task": {"name": "shapes", "size": [16, 16], "train": 16, "test": 4},
    "model": {"name": "unet", "base": 4, "levels": 2}, "steps": 3, "towers": 8, "batch_per_tower": 2, )"
                      << keys << "}";
  ProbeRequest request;
  request.exchanges = {Exchange::shared_memory, Exchange::sockets};
  request.seconds = 1;
  request.largest_bytes = 64;
  request.runs = runs_to_measure(load_experiment(file.string()).runs, 2);
  Json probe;
  const int port = LoopbackSocket().port();  // free again when rank 0 takes it
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Rendezvous at;
      at.rank = rank;
      at.size = 2;
      at.port = port;
      at.delay = delay;
      const Json own = run_probe(request, at);
      if (rank == 0) probe = own;
      EXPECT_EQ(own.is_null(), rank != 0);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return probe;
}

TEST(Probe, IsAsItsSchemaSays) {
  const Json probe = probe_on_two_ranks(
      {}, R"("matrix": {"strategy": ["per_tower", "sync", {"name": "sync", "group_size": 8}]})");
  EXPECT_EQ(misfits(probe, probe_schema(), Keys::exact), std::vector<std::string>());
  EXPECT_EQ(probe.at("steps").size(), 6U);
  EXPECT_TRUE(probe.at("steps").at(2).contains("refused"));
}

TEST(Probe, PredictsTheStepsThatItHasMeasured) {
  const Json probe =
      probe_on_two_ranks({.seconds = 2e-3}, R"("matrix": {"strategy": ["per_tower", "sync"]})");
  const std::vector<CheckedPrediction> steps = steps_of_probe(probe, "probe.json");
  ASSERT_EQ(steps.size(), 4U);
  for (const CheckedPrediction& step : steps) {
    EXPECT_GT(step.predicted.mid, 0);
    EXPECT_LE(step.predicted.low, step.predicted.mid);
    EXPECT_LE(step.predicted.mid, step.predicted.high);
  }
  // 12 exchanges of statistics that take 2 ms each at least are in the prediction, whatever the machine does.
  EXPECT_GE(steps[1].predicted.mid, 12 * 2e-3);
}

TEST(Probe, LooksForSpareCoresOnEachNode) {
  Json fabric = {
      {"ranks", 32}, {"nodes", 4}, {"threads_per_rank", 1}, {"environment", {{"logical_cores", 16}}}};
  EXPECT_TRUE(has_spare_cores(fabric));
  fabric["nodes"] = 2;
  EXPECT_FALSE(has_spare_cores(fabric));
}

}  // namespace
}  // namespace bnlab::probe_test
