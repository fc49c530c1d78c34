// What one collective takes between so many ranks: a model of NCCL's algorithms and of bnlab's exchanges
// between CPU ranks, calibrated by a probe (`bnlab probe`) or by what others have published of a cluster.
// Never a bare number: each answer is an interval.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

struct Estimate {
  double low = 0, mid = 0, high = 0;
};

inline Estimate operator+(const Estimate& a, const Estimate& b) {
  return {a.low + b.low, a.mid + b.mid, a.high + b.high};
}
inline Estimate operator*(double factor, const Estimate& a) {
  return {factor * a.low, factor * a.mid, factor * a.high};
}

// tree, ring, nvls: NCCL's. sockets: Gloo's rings. shared_memory: every rank reads what each has written.
struct Interconnect {
  std::string algorithm = "tree";
  std::string link = "nvlink";  // between the GPUs of a node: nvlink or pcie
  int per_node = 8;
};

// Seconds of a collective to which every rank hands `bytes`, by the model alone.
//
// Latency, from NCCL 2.30's own tuning model (src/graph/tuning.cc), low-latency protocol, microseconds:
//   ring       6.6 + 2 (P - 1) hop; of the steps 2 (nodes - 1) are between nodes and take 2.7
//   tree       6.8 + 2 ((per_node - 1) hop + 5 log2(nodes))
//   NVLS tree  25 + 41.7 log2(nodes)
// A hop is 0.6 over NVLink, 1.0 over PCIe. all_gather takes half a ring, broadcast and reduce half a tree.
double modelled_seconds(const Interconnect& network, const std::string& op, double bytes, int ranks);

// The same of a message so large that its bytes count, by NCCL's protocol for bandwidth (Simple: 8.4; steps
// of 4.0 in a tree and 3.4 in a ring over NVLink, 4.0 and 5.7 over PCIe, 14.0 between nodes): its latency
// alone. The bytes take large_bytes() over the bus bandwidth that nccl-tests prints as busbw.
double large_message_latency(const Interconnect& network, const std::string& op, int ranks);
double large_bytes(const std::string& op, double bytes, int ranks);

// How many times the latency of an all_reduce by NCCL's next protocol (LL128: 14.0; steps of 1.25 in a tree
// and 1.9 in a ring over NVLink, 1.9 and 2.5 over PCIe, 8.5 and 4.0 between nodes) is that by the low-latency
// one. Where a size has not been measured, which of them NCCL takes is not known. 1 for NVLS; of NCCL's
// algorithms alone.
double factor_between_protocols(const Interconnect& network, int ranks);

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual std::string name() const = 0;
  // Of `exchange` (nccl, shared_memory or sockets) where the fabric tells them apart.
  virtual Estimate seconds(const std::string& exchange, const std::string& op, double bytes,
                           int ranks) const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
};

// By the times of a probe, a JSON file of `bnlab probe`. At its own number of ranks they are taken as
// measured; at others they grow as the model does, and the interval widens by a factor with every
// doubling. Throws Error (usage) where `probe` is none.
std::unique_ptr<Fabric> probed_fabric(const Json& probe, const std::string& file, double per_doubling);

}  // namespace bnlab
