// Published clusters (clusters.json): what their small all-reduces take, beside the model, and the bandwidth
// of their large ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/prediction/fabric.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// How all-reduces were launched: one by one, inside a CUDA graph, or so over symmetric memory.
inline const std::vector<std::string> kPaths{"ordinary", "graph", "symmetric"};

struct Cluster {
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };
  std::string name, about, source, failure;
  std::string path;  // one of kPaths
  int year = 0;
  int ranks = 0;
  Interconnect network;
  std::vector<Point> points;

  double modelled(const Point& point) const {
    return modelled_seconds(network, "all_reduce", point.bytes, ranks);
  }
  // The geometric mean of measured over modelled: its own calibration.
  double factor() const;
};

// What the largest all-reduces reach, as nccl-tests prints it: 2 (P - 1) / P of the bytes over the time.
struct BusBandwidth {
  std::string about = {}, source = {};
  int year = 0;
  int nodes = 1;
  std::string link = {};     // between the GPUs of a node
  std::string cluster = {};  // among published_clusters(), where it is one
  double bytes_per_s = 0;

  // Those that predict each other: in a node by NVLink, between nodes by NVLink and a network, over PCIe.
  std::string kind() const {
    return link == "pcie" ? "PCIe" : nodes > 1 ? "NVLink, several nodes" : "NVLink";
  }
};

// All-reduces of growing size on one cluster.
struct Sweep {
  std::string cluster, source;
  std::vector<Cluster::Point> points;
};

const std::vector<Cluster>& published_clusters();
const std::vector<BusBandwidth>& published_bandwidths();
const Sweep& published_sweep();
const Json& known_failures();  // [{"case", "source", "year", "published", "why"}]

// Numbers of clusters as a log-normal distribution: the mean, and the half-width of the interval that holds
// the next cluster's with 90 %.
struct FactorSpread {
  double mean = 1;
  double half_width = 1;  // a factor: from mean / half_width to mean * half_width
};
// The mean is that of the path's clusters, the scatter that of all clusters about the mean of their own path.
FactorSpread spread_of_factors(const std::vector<Cluster>& clusters, const std::string& path);
FactorSpread spread_of_bandwidths(const std::vector<BusBandwidth>& of_one_kind);

// By how much the calibration of one kind of machine changes for each doubling of its ranks, as a factor:
// from the families of clusters.json.
double factor_per_doubling();

// By the calibration of one published cluster. Throws Error (usage) with the nearest name where there is
// none.
std::unique_ptr<Fabric> cluster_fabric(const std::string& name);
// Without any: the interval is as wide as the published clusters disagree.
std::unique_ptr<Fabric> unknown_fabric(const Interconnect& network, const std::string& path = "graph");

}  // namespace bnlab
