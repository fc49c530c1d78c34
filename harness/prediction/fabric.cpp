#include "harness/prediction/fabric.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr double kMicro = 1e-6;

// Microseconds of one of NCCL's algorithms by one of its protocols: what it starts with, and a step over
// NVLink, over PCIe and between nodes.
struct Latencies {
  double start, nvlink, pcie, between_nodes;
};
struct Protocol {
  Latencies ring, tree;
};
constexpr Protocol kLowLatency{{6.6, 0.6, 1.0, 2.7}, {6.8, 0.6, 1.0, 5.0}};     // LL
constexpr Protocol kLinesOf128{{14.0, 1.9, 2.5, 4.0}, {14.0, 1.25, 1.9, 8.5}};  // LL128
constexpr Protocol kSimple{{8.4, 3.4, 5.7, 14.0}, {8.4, 4.0, 4.0, 14.0}};
constexpr double kNvlsStart = 25, kNvlsLevel = 41.7;
constexpr double kLowLatencyBytesPerS =
    6e9;  // a tree's small messages, by the times that NCCL's log predicts
constexpr double kSocketMessage = 30,
                 kSocketBytesPerS = 2e9;  // their size counts for nothing: a probe calibrates
constexpr double kSlotStart = 2, kSlotOfARank = 0.7, kSlotBytesPerS = 5e9;

double levels(double count) {
  return count > 1 ? std::ceil(std::log2(count)) : 0;
}

// How often a rank's bytes pass its link.
double link_crossings(const std::string& op, double ranks) {
  if (op == "all_reduce") return 2 * (ranks - 1) / ranks;
  if (op == "all_gather" || op == "gather") return ranks - 1;
  return op == "all_to_all" ? (ranks - 1) / ranks : 1;
}

double nccl_latency(const Interconnect& network, const Protocol& protocol, const std::string& op,
                    double ranks) {
  const auto& [ring, tree] = protocol;
  const auto hop = [&](const Latencies& of) { return network.link == "pcie" ? of.pcie : of.nvlink; };
  const double in_node = std::min<double>(ranks, network.per_node);
  const double nodes = std::ceil(ranks / network.per_node);
  const double between = std::min(nodes - 1, ranks - 1);
  const double ring_once = (ranks - 1 - between) * hop(ring) + between * ring.between_nodes;
  if (op == "all_gather" || op == "gather" || op == "all_to_all") return ring.start + ring_once;
  const double turns = op == "all_reduce" ? 2 : 1;
  if (network.algorithm == "ring") return ring.start + turns * ring_once;
  if (network.algorithm == "nvls") return kNvlsStart + kNvlsLevel * std::log2(nodes);
  return tree.start + turns * ((in_node - 1) * hop(tree) + std::log2(nodes) * tree.between_nodes);
}

double gloo_messages(const std::string& op, double ranks) {
  if (op == "all_reduce") return 2 * (ranks - 1);
  if (op == "broadcast" || op == "reduce") return levels(ranks);
  return ranks - 1;
}

// Between the sizes that were measured by the logarithms, below the smallest as there, beyond the largest as
// the model grows.
double interpolated(const std::vector<std::pair<double, double>>& curve, double bytes,
                    const std::function<double(double)>& modelled) {
  const auto above = std::ranges::lower_bound(curve, bytes, {}, &std::pair<double, double>::first);
  if (above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == curve.end()) return below->second * modelled(bytes) / modelled(below->first);
  const double place = std::log(bytes / below->first) / std::log(above->first / below->first);
  return below->second * std::pow(above->second / below->second, place);
}

class ProbedFabric : public Fabric {
 public:
  ProbedFabric(const Json& probe, std::string file, double per_doubling)
      : file_(std::move(file)), per_doubling_(per_doubling) {
    const Json& fabric = probe.at("fabric");
    ranks_ = fabric.at("ranks");
    network_.per_node = std::max(1, ranks_ / fabric.at("nodes").get<int>());
    for (const Json& row : probe.at("collectives")) {
      Curve& curve = curves_[{row.at("exchange"), row.at("op")}];
      const double bytes = row.at("bytes");
      const Json& alone = row.contains("graph_time_s") ? row.at("graph_time_s") : row.at("time_s");
      const Json& behind_work = row.contains("after_work_s") ? row.at("after_work_s") : row.at("time_s");
      const double mid = behind_work.at("mean");  // a step adds up many, and the rare long ones with them
      curve.low.emplace_back(bytes, std::min(mid, alone.at("p50").get<double>()));
      curve.mid.emplace_back(bytes, mid);
      curve.high.emplace_back(
          bytes, std::max({mid, behind_work.at("mean").get<double>(), behind_work.at("p90").get<double>()}));
    }
  }

  std::string name() const override { return file_; }

  Estimate seconds(const std::string& exchange, const std::string& op, double bytes,
                   int ranks) const override {
    const auto found = curves_.find({exchange, op});
    if (found == curves_.end()) {
      throw Error(Error::Kind::usage, file_ + ": this probe has no " + op + " over " + exchange +
                                          "; measure it: bnlab probe --ranks 2 --out FILE");
    }
    const Curve& curve = found->second;
    Interconnect network = network_;
    network.algorithm = exchange == "nccl" ? "tree" : exchange;
    const double growth =
        modelled_seconds(network, op, bytes, ranks) / modelled_seconds(network, op, bytes, ranks_);
    const double doublings = std::abs(std::log2(static_cast<double>(ranks) / ranks_));
    const double widening = std::pow(per_doubling_, doublings);
    const auto at = [&](const std::vector<std::pair<double, double>>& points) {
      return growth * interpolated(points, bytes,
                                   [&](double size) { return modelled_seconds(network, op, size, ranks_); });
    };
    return {at(curve.low) / widening, at(curve.mid), widening * at(curve.high)};
  }

  std::vector<std::string> notes() const override {
    return {
        "Exchanges: measured on " + std::to_string(ranks_) + " ranks (" + file_ +
        "); on other numbers of ranks they grow as the model says, and the interval widens by a factor for "
        "each doubling."};
  }

 private:
  struct Curve {
    std::vector<std::pair<double, double>> low, mid, high;  // bytes, seconds
  };

  std::string file_;
  double per_doubling_;
  int ranks_ = 1;
  Interconnect network_;
  std::map<std::pair<std::string, std::string>, Curve> curves_;  // by exchange and collective
};

}  // namespace

double modelled_seconds(const Interconnect& network, const std::string& op, double bytes, int ranks) {
  const auto count = static_cast<double>(ranks);
  if (ranks < 2) return 0;
  const double carried = bytes * link_crossings(op, count);
  if (network.algorithm == "sockets")
    return kMicro * kSocketMessage * gloo_messages(op, count) + carried / kSocketBytesPerS;
  if (network.algorithm == "shared_memory")
    return kMicro * (kSlotStart + kSlotOfARank * count) + bytes * count / kSlotBytesPerS;
  return kMicro * nccl_latency(network, kLowLatency, op, count) + carried / 2 / kLowLatencyBytesPerS;
}

double large_message_latency(const Interconnect& network, const std::string& op, int ranks) {
  return kMicro * nccl_latency(network, kSimple, op, ranks);
}

double large_bytes(const std::string& op, double bytes, int ranks) {
  return bytes * link_crossings(op, ranks);
}

double factor_between_protocols(const Interconnect& network, int ranks) {
  const auto count = static_cast<double>(ranks);
  return nccl_latency(network, kLinesOf128, "all_reduce", count) /
         nccl_latency(network, kLowLatency, "all_reduce", count);
}

std::unique_ptr<Fabric> probed_fabric(const Json& probe, const std::string& file, double per_doubling) {
  try {
    if (probe.at("schema") != "bnlab probe 1") {
      throw Error(Error::Kind::usage,
                  file + ": expected a file of bnlab probe --out, got schema " + probe.at("schema").dump());
    }
    return std::make_unique<ProbedFabric>(probe, file, per_doubling);
  } catch (const Json::exception&) {
    throw Error(Error::Kind::usage,
                file + ": expected a file of bnlab probe --out, got one that lacks a part");
  }
}

}  // namespace bnlab
