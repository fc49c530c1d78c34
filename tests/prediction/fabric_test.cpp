// What one exchange is said to take: the model against NCCL's own log, and probes that were measured
// elsewhere.
#include "harness/prediction/fabric.hpp"

#include <gtest/gtest.h>

#include "harness/prediction/clusters.hpp"
#include "harness/support/error.hpp"

namespace bnlab::fabric_test {
namespace {

double microseconds(const Interconnect& network, const char* op, double bytes, int ranks) {
  return modelled_seconds(network, op, bytes, ranks) * 1e6;
}

// A probe of two ranks: an all_reduce of 8 B takes 10 us by itself and 24 us behind other work on the mean,
// one of 800 B twice as much.
Json small_probe() {
  const auto row = [](int64_t bytes, double factor) {
    return Json{
        {"exchange", "sockets"},
        {"op", "all_reduce"},
        {"bytes", bytes},
        {"time_s", {{"p50", factor * 10e-6}, {"p90", factor * 11e-6}, {"mean", factor * 10e-6}}},
        {"after_work_s", {{"p50", factor * 20e-6}, {"p90", factor * 40e-6}, {"mean", factor * 24e-6}}}};
  };
  return {{"schema", "bnlab probe 1"},
          {"fabric", {{"ranks", 2}, {"nodes", 1}}},
          {"collectives", {row(8, 1), row(800, 2)}}};
}

// NVIDIA/nccl#1453 logs what NCCL itself predicts for a tree over two nodes of eight GPUs.
TEST(ModelledSeconds, AreWhatNcclLogsForATreeOverTwoNodes) {
  const Interconnect network{.algorithm = "tree", .link = "nvlink", .per_node = 8};
  EXPECT_NEAR(microseconds(network, "all_reduce", 128, 16), 25.21, 0.05);
  EXPECT_NEAR(microseconds(network, "all_reduce", 4096, 16), 25.87, 0.05);
  EXPECT_NEAR(microseconds(network, "all_reduce", 8192, 16), 26.55, 0.1);
}

TEST(ModelledSeconds, GrowWithTheRanksAsTheAlgorithmDoes) {
  const Interconnect tree{.algorithm = "tree"}, ring{.algorithm = "ring"}, nvls{.algorithm = "nvls"};
  EXPECT_NEAR(microseconds(tree, "all_reduce", 0, 64), 6.8 + 2 * (7 * 0.6 + 3 * 5.0), 1e-9);
  EXPECT_NEAR(microseconds(ring, "all_reduce", 0, 64), 6.6 + 2 * (56 * 0.6 + 7 * 2.7), 1e-9);
  EXPECT_NEAR(microseconds(nvls, "all_reduce", 0, 64), 25 + 3 * 41.7, 1e-9);
  EXPECT_NEAR(microseconds(tree, "all_gather", 0, 64), 6.6 + 56 * 0.6 + 7 * 2.7, 1e-9);
  EXPECT_NEAR(microseconds({.link = "pcie"}, "all_reduce", 0, 8), 6.8 + 2 * 7 * 1.0, 1e-9);
}

TEST(ModelledSeconds, AnotherProtocolTakesLongerByTheModelItself) {
  const Interconnect tree{.algorithm = "tree", .link = "nvlink", .per_node = 4};
  EXPECT_NEAR(factor_between_protocols(tree, 8), (14 + 2 * (3 * 1.25 + 8.5)) / (6.8 + 2 * (3 * 0.6 + 5.0)),
              1e-9);
  EXPECT_NEAR(factor_between_protocols({.algorithm = "ring", .link = "pcie", .per_node = 4}, 4),
              (14 + 6 * 2.5) / (6.6 + 6 * 1.0), 1e-9);
  EXPECT_EQ(factor_between_protocols({.algorithm = "nvls"}, 16), 1);
}

TEST(ModelledSeconds, OfARankByItselfAreNone) {
  EXPECT_EQ(microseconds({}, "all_reduce", 1e6, 1), 0);
}

TEST(ProbedFabric, TakesTheMeanBehindOtherWorkAndBoundsItByBoth) {
  const auto fabric = probed_fabric(small_probe(), "probe.json", factor_per_doubling());
  const Estimate time = fabric->seconds("sockets", "all_reduce", 8, 2);
  EXPECT_NEAR(time.low, 10e-6, 1e-12);
  EXPECT_NEAR(time.mid, 24e-6, 1e-12);
  EXPECT_NEAR(time.high, 40e-6, 1e-12);
}

TEST(ProbedFabric, LiesBetweenTheSizesThatWereMeasured) {
  const auto fabric = probed_fabric(small_probe(), "probe.json", factor_per_doubling());
  EXPECT_NEAR(fabric->seconds("sockets", "all_reduce", 80, 2).mid, 24e-6 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(fabric->seconds("sockets", "all_reduce", 4, 2).mid, 24e-6, 1e-12)
      << "no less than the smallest";
  const double more = microseconds({.algorithm = "sockets"}, "all_reduce", 8e6, 2) /
                      microseconds({.algorithm = "sockets"}, "all_reduce", 800, 2);
  EXPECT_NEAR(fabric->seconds("sockets", "all_reduce", 8e6, 2).mid, 48e-6 * more, 1e-9)
      << "as the model grows: what is slow for its latency is not as much slower for its bytes";
}

TEST(ProbedFabric, GrowsAsTheModelDoesAndIsLessSureWithEveryDoubling) {
  const auto fabric = probed_fabric(small_probe(), "probe.json", factor_per_doubling());
  const Estimate two = fabric->seconds("sockets", "all_reduce", 8, 2);
  const Estimate eight = fabric->seconds("sockets", "all_reduce", 8, 8);
  EXPECT_NEAR(eight.mid / two.mid, 7, 1e-3) << "a ring of eight has seven times the steps";
  EXPECT_NEAR(eight.high / two.high, 7 * std::pow(factor_per_doubling(), 2), 1e-2);
  EXPECT_NEAR(eight.low / two.low, 7 / std::pow(factor_per_doubling(), 2), 1e-2);
}

TEST(ProbedFabric, NamesWhatTheProbeLacks) {
  const auto fabric = probed_fabric(small_probe(), "probe.json", factor_per_doubling());
  try {
    fabric->seconds("shared_memory", "all_gather", 8, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no all_gather over shared_memory"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(probed_fabric({{"schema", "something else"}}, "probe.json", factor_per_doubling()), Error);
  EXPECT_THROW(probed_fabric(Json::array(), "probe.json", factor_per_doubling()), Error);
}

TEST(Clusters, HaveTheFactorsThatTheirTimesAreOfTheModel) {
  const auto factor = [](const std::string& name) {
    const auto& all = published_clusters();
    return std::ranges::find(all, name, &Cluster::name)->factor();
  };
  EXPECT_NEAR(factor("h100-2x8"), std::sqrt(61.58 / 25.2 * 75.38 / 25.84), 0.01);
  EXPECT_NEAR(factor("efa-2x8"), 5.7, 0.3);
  EXPECT_LT(factor("gh200-2x4"), 1.6);
}

TEST(Clusters, WithoutAProbeTheIntervalHoldsThoseOfTheSamePath) {
  for (const Cluster& cluster : published_clusters()) {
    const FactorSpread spread = spread_of_factors(published_clusters(), cluster.path);
    EXPECT_LE(cluster.factor(), spread.mean * spread.half_width) << cluster.name;
    EXPECT_GE(cluster.factor(), spread.mean / spread.half_width) << cluster.name;
  }
  const Estimate time = unknown_fabric({})->seconds("nccl", "all_reduce", 128, 64);
  EXPECT_LT(time.low, time.mid);
  EXPECT_LT(time.mid, time.high);
}

// Factors 2 and 8 on one path, 4 on another: the means are those of the paths, the scatter is the first's.
TEST(Clusters, AreFittedApartByTheirPaths) {
  const auto cluster = [](const std::string& path, double factor) {
    Cluster one;
    one.path = path;
    one.ranks = 8;
    one.points = {{128, factor * one.modelled({128, 0})}};
    return one;
  };
  const std::vector<Cluster> all{cluster("graph", 2), cluster("ordinary", 4), cluster("graph", 8)};
  const FactorSpread graph = spread_of_factors(all, "graph"), ordinary = spread_of_factors(all, "ordinary");
  EXPECT_NEAR(graph.mean, 4, 1e-9);
  EXPECT_NEAR(ordinary.mean, 4, 1e-9);
  const double deviation = std::log(4.0) / std::sqrt(2.0);  // of the path that has two
  constexpr double kQuantile = 6.313752;                    // Student's t, one degree of freedom, 0.95
  EXPECT_NEAR(std::log(graph.half_width), kQuantile * deviation * std::sqrt(1.5), 1e-5);
  EXPECT_NEAR(std::log(ordinary.half_width), kQuantile * deviation * std::sqrt(2.0), 1e-5);
}

TEST(LargeMessages, StartLaterThanSmallOnesAndTakeTheBusBandwidth) {
  EXPECT_NEAR(large_message_latency({.algorithm = "ring"}, "all_reduce", 8) * 1e6, 8.4 + 14 * 3.4, 1e-9);
  EXPECT_NEAR(large_message_latency({.algorithm = "tree"}, "all_reduce", 64) * 1e6,
              8.4 + 2 * (7 * 4.0 + 3 * 14.0), 1e-9);
  EXPECT_NEAR(large_bytes("all_reduce", 8e6, 8), 14e6, 1e-3) << "as nccl-tests counts them";
}

// 8 H200 (clusters.json) take 1,077 us for 256 MiB and 46 us for 1 MiB.
TEST(LargeMessages, OfOneClusterAreWhatItsSweepSays) {
  const auto fabric = cluster_fabric("h200-x8");
  EXPECT_NEAR(fabric->seconds("nccl", "all_reduce", 256 << 20, 8).mid * 1e6, 1077, 60);
  EXPECT_NEAR(fabric->seconds("nccl", "all_reduce", 1 << 20, 8).mid * 1e6, 46, 20);
  for (const Cluster::Point& point : published_sweep().points) {
    const Estimate time = fabric->seconds("nccl", "all_reduce", point.bytes, 8);
    EXPECT_LE(time.low, point.seconds) << point.bytes;
    EXPECT_GE(time.high, point.seconds) << point.bytes;
  }
}

// The gradients of a ResNet-50: milliseconds in a node by NVLink, not the tens that the protocol for small
// messages would take.
TEST(LargeMessages, WithoutAProbeGoByTheBandwidthsOfTheirKind) {
  const auto milliseconds = [](const Interconnect& network, int ranks) {
    return unknown_fabric(network)->seconds("nccl", "all_reduce", 100e6, ranks).mid * 1e3;
  };
  const double node = milliseconds({}, 8), nodes = milliseconds({}, 64),
               pcie = milliseconds({.link = "pcie"}, 8);
  EXPECT_NEAR(node, 0.65, 0.1);
  EXPECT_GT(nodes, 1.5 * node) << "between nodes a network carries them";
  EXPECT_GT(pcie, 5 * node);
  EXPECT_EQ(milliseconds({}, 1), 0);
  const Estimate small = unknown_fabric({})->seconds("nccl", "all_reduce", 128, 8);
  EXPECT_NEAR(small.mid / modelled_seconds({}, "all_reduce", 128, 8),
              spread_of_factors(published_clusters(), "graph").mean, 1e-9)
      << "small ones as before";
}

TEST(Clusters, OneOfThemKeepsItsCalibrationAndTellsItsFailure) {
  const auto fabric = cluster_fabric("efa-2x8");
  EXPECT_NEAR(fabric->seconds("nccl", "all_reduce", 8, 16).mid, 146e-6, 6e-6);
  EXPECT_EQ(fabric->notes().size(), 2U);
  EXPECT_THROW(cluster_fabric("efa-2x9"), Error);
}

}  // namespace
}  // namespace bnlab::fabric_test
