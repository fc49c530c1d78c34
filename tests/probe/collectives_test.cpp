// What a probe says of collectives, and that it looks at their results.
#include "harness/probe/collectives.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <set>

#include "harness/communicator/counting_world.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/support/error.hpp"

namespace bnlab::collectives_test {
namespace {

Json rows_on(int ranks, Exchange exchange, int64_t largest_bytes, double seconds = 1) {
  Json rows;
  on_thread_ranks(
      ranks, at::kCPU,
      [&](World& world) {
        CollectiveSamples samples;
        measure_collectives(world, name_of(exchange), seconds, largest_bytes, samples);
        if (world.rank() == 0) rows = rows_of(samples, name_of(exchange), ranks);
      },
      exchange);
  return rows;
}

TEST(MeasureCollectives, HasARowForEachAtEverySize) {
  std::map<std::string, std::set<int64_t>> sizes;
  for (const Json& row : rows_on(2, Exchange::shared_memory, 1024, 5)) {
    sizes[row.at("op")].insert(row.at("size_bytes").get<int64_t>());
    EXPECT_EQ(row.at("exchange"), "shared_memory");
    EXPECT_LE(row.at("time_s").at("p50"), row.at("time_s").at("p95"));
    EXPECT_LE(row.at("time_s").at("p95"), row.at("time_s").at("p99"));
    EXPECT_TRUE(row.contains("after_work_s"));
    EXPECT_FALSE(row.contains("graph_time_s")) << "there are no graphs on a CPU";
  }
  const std::set<int64_t> powers{8, 16, 32, 64, 128, 256, 512, 1024};
  EXPECT_EQ(sizes.at("all_reduce"), powers);
  EXPECT_EQ(sizes.at("broadcast"), powers);
  EXPECT_EQ(sizes.at("reduce"), powers);
  EXPECT_EQ(sizes.at("all_to_all"), powers);
  EXPECT_EQ(sizes.at("all_gather"), (std::set<int64_t>{16, 32, 64, 128, 256, 512, 1024}))
      << "8 B of each rank";
  EXPECT_EQ(sizes.at("gather"), sizes.at("all_gather"));
}

// As https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md defines it.
TEST(MeasureCollectives, CountsTheBandwidthOfTheBusAsNcclTestsDo) {
  const std::map<std::string, double> factors{{"all_reduce", 4.0 / 3}, {"all_gather", 2.0 / 3},
                                              {"gather", 2.0 / 3},     {"all_to_all", 2.0 / 3},
                                              {"broadcast", 1},        {"reduce", 1}};
  for (const Json& row : rows_on(3, Exchange::sockets, 256)) {
    const double time = row.at("time_s").at("p50"), size = row.at("size_bytes");
    EXPECT_NEAR(row.at("algbw_bytes_per_s").get<double>(), size / time, 1e-6 * size / time);
    EXPECT_NEAR(row.at("busbw_bytes_per_s").get<double>() / row.at("algbw_bytes_per_s").get<double>(),
                factors.at(row.at("op")), 1e-9)
        << row.at("op");
  }
}

TEST(MeasureCollectives, LeavesLargeSizesOutWhereTimeRunsOut) {
  int64_t largest = 0;
  for (const Json& row : rows_on(2, Exchange::sockets, int64_t{1} << 40, 0.5))
    largest = std::max(largest, row.at("size_bytes").get<int64_t>());
  EXPECT_GE(largest, 16);
  EXPECT_LT(largest, int64_t{1} << 34);
}

TEST(MeasureCollectives, AddsOneRoundToAnother) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    CollectiveSamples samples;
    const auto small = [&] { return samples.at("all_reduce").at(8).after_work.size(); };
    measure_collectives(world, "shared_memory", 0.5, 64, samples);
    const size_t once = small();
    // A machine with much else to do may not come to the largest size in its first further round.
    for (int round = 0; round < 20 && !samples.at("all_reduce").contains(128); ++round)
      measure_collectives(world, "shared_memory", 0.5, 128, samples);
    EXPECT_GT(small(), once);
    EXPECT_TRUE(samples.at("all_reduce").contains(128)) << "what a further round alone has measured";
    EXPECT_EQ(rows_of(samples, "shared_memory", 2).at(0).at("time_s").at("samples"),
              samples.at("all_gather").at(8).alone.size());
  });
}

// A world without other ranks answers with what this rank has sent: no sum of different numbers.
TEST(MeasureCollectives, RefusesAWrongResult) {
  CountingWorld world(2, at::kCPU);
  try {
    CollectiveSamples samples;
    measure_collectives(world, "nowhere", 1, 64, samples);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::communication);
    EXPECT_NE(std::string(error.what()).find("all_gather of 16 bytes over nowhere has a wrong result"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bnlab::collectives_test
