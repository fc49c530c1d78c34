#include "harness/prediction/clusters.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <texts/clusters.hpp>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

// The sweep of 8 H200 (clusters.json) lies so far, at most, about what its largest messages reach.
constexpr double kSweepAboutItsBandwidth = 1.5;

const Json& file() {
  static const Json parsed = Json::parse(kPublishedClusters);
  return parsed;
}

std::vector<Cluster::Point> read_points(const Json& json) {
  return mapped(json.at("points"), [](const Json& point) {
    return Cluster::Point{point.at("bytes"), point.at("us").get<double>() * 1e-6};
  });
}

Cluster read_cluster(const Json& json) {
  return {.name = json.at("name"),
          .about = json.at("about"),
          .source = json.at("source"),
          .failure = json.value("failure", ""),
          .path = json.at("path"),
          .year = json.at("year"),
          .ranks = json.at("ranks"),
          .network = {json.at("algorithm"), json.at("link"), json.at("per_node")},
          .points = read_points(json)};
}

BusBandwidth read_bandwidth(const Json& json) {
  return {.about = json.at("about"),
          .source = json.at("source"),
          .year = json.at("year"),
          .nodes = json.at("nodes"),
          .link = json.at("link"),
          .cluster = json.value("cluster", ""),
          .bytes_per_s = 1e9 * json.at("gb_per_s").get<double>()};
}

// Of clusters like this one, or its own.
FactorSpread bandwidth_of(const Interconnect& network, const std::string& cluster, int nodes) {
  std::vector<BusBandwidth> alike;
  for (const BusBandwidth& one : published_bandwidths()) {
    if (!cluster.empty() && one.cluster == cluster) return {one.bytes_per_s, kSweepAboutItsBandwidth};
    if (one.kind() == BusBandwidth{.nodes = nodes, .link = network.link}.kind()) alike.push_back(one);
  }
  return spread_of_bandwidths(alike);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The mean is that of the first group, the scatter that of all about their own means.
FactorSpread spread_of(const std::vector<std::vector<double>>& groups_of_logs) {
  double squares = 0, freedom = 0;
  for (const std::vector<double>& logs : groups_of_logs) {
    for (const double log : logs) squares += std::pow(log - mean_of(logs), 2);
    freedom += static_cast<double>(logs.size()) - 1;
  }
  const std::vector<double>& first = groups_of_logs.front();
  const double deviation = std::sqrt(squares / freedom * (1 + 1 / static_cast<double>(first.size())));
  const boost::math::students_t distribution(freedom);
  return {std::exp(mean_of(first)), std::exp(deviation * boost::math::quantile(distribution, 0.95))};
}

const Cluster& cluster_named(const std::string& name) {
  const std::vector<Cluster>& all = published_clusters();
  const auto found = std::ranges::find(all, name, &Cluster::name);
  if (found == all.end()) {
    throw Error(Error::Kind::usage, "--cluster " + name + ": there is no such published cluster" +
                                        suggestion(name, mapped(all, &Cluster::name)));
  }
  return *found;
}

// The model with a factor; `half_width` is that of the factor's interval. Of the protocols for small and for
// large messages the shorter.
class CalibratedFabric : public Fabric {
 public:
  CalibratedFabric(std::string name, std::string cluster, Interconnect network, double factor,
                   double half_width, double per_doubling, int ranks, std::vector<std::string> notes)
      : name_(std::move(name)),
        cluster_(std::move(cluster)),
        network_(std::move(network)),
        factor_(factor),
        half_width_(half_width),
        per_doubling_(per_doubling),
        ranks_(ranks),
        notes_(std::move(notes)) {}
  std::string name() const override { return name_; }
  std::vector<std::string> notes() const override { return notes_; }

  Estimate seconds(const std::string&, const std::string& op, double bytes, int ranks) const override {
    const double doublings = ranks_ > 0 ? std::abs(std::log2(static_cast<double>(ranks) / ranks_)) : 0;
    const double wide = half_width_ * std::pow(per_doubling_, doublings);
    if (ranks < 2) return {};
    const double small = factor_ * modelled_seconds(network_, op, bytes, ranks);
    const double latency = factor_ * large_message_latency(network_, op, ranks);
    const FactorSpread bandwidth =
        bandwidth_of(network_, cluster_, (ranks + network_.per_node - 1) / network_.per_node);
    const double carried = large_bytes(op, bytes, ranks) / bandwidth.mean;
    const auto shorter = [&](double times, double times_bytes) {
      return std::min(times * small, times * latency + times_bytes * carried);
    };
    return {shorter(1 / wide, 1 / bandwidth.half_width), shorter(1, 1), shorter(wide, bandwidth.half_width)};
  }

 private:
  std::string name_, cluster_;
  Interconnect network_;
  double factor_, half_width_, per_doubling_;
  int ranks_;  // at which the factor was found; 0: at any
  std::vector<std::string> notes_;
};

}  // namespace

double Cluster::factor() const {
  double sum = 0;
  for (const Point& point : points) sum += std::log(point.seconds / modelled(point));
  return std::exp(sum / static_cast<double>(points.size()));
}

const std::vector<Cluster>& published_clusters() {
  static const std::vector<Cluster> all = mapped(file().at("clusters"), read_cluster);
  return all;
}

const std::vector<BusBandwidth>& published_bandwidths() {
  static const std::vector<BusBandwidth> all = mapped(file().at("bandwidths"), read_bandwidth);
  return all;
}

const Sweep& published_sweep() {
  static const Json& sweep = file().at("sweep");
  static const Sweep read{sweep.at("cluster"), sweep.at("source"), read_points(sweep)};
  return read;
}

const Json& known_failures() {
  return file().at("failures");
}

FactorSpread spread_of_factors(const std::vector<Cluster>& clusters, const std::string& path) {
  std::map<std::string, std::vector<double>> logs;
  for (const Cluster& cluster : clusters) logs[cluster.path].push_back(std::log(cluster.factor()));
  std::vector<std::vector<double>> groups{logs.at(path)};
  logs.erase(path);
  for (const auto& [other, of_other] : logs) groups.push_back(of_other);
  return spread_of(groups);
}

FactorSpread spread_of_bandwidths(const std::vector<BusBandwidth>& of_one_kind) {
  return spread_of({mapped(of_one_kind, [](const BusBandwidth& one) { return std::log(one.bytes_per_s); })});
}

double factor_per_doubling() {
  static const double factor = [] {
    double sum = 0;
    const Json& families = file().at("families");
    for (const Json& family : families) {
      const Cluster& small = cluster_named(family.at(0));
      const Cluster& large = cluster_named(family.at(1));
      sum += std::abs(std::log(large.factor() / small.factor())) /
             std::log2(static_cast<double>(large.ranks) / small.ranks);
    }
    return std::exp(sum / static_cast<double>(families.size()));
  }();
  return factor;
}

std::unique_ptr<Fabric> cluster_fabric(const std::string& name) {
  const Cluster& cluster = cluster_named(name);
  double widest = 1;  // from its factor to its own points
  for (const Cluster::Point& point : cluster.points) {
    const double off = point.seconds / cluster.modelled(point) / cluster.factor();
    widest = std::max({widest, off, 1 / off});
  }
  widest = std::max(widest, factor_per_doubling());
  std::vector<std::string> notes{"Exchanges: the model, times the factor of " + cluster.name + " (" +
                                 cluster.about + "; " + cluster.source + ", " + std::to_string(cluster.year) +
                                 ")."};
  if (!cluster.failure.empty()) notes.push_back("Known failure of the model: " + cluster.failure);
  return std::make_unique<CalibratedFabric>(cluster.name, cluster.name, cluster.network, cluster.factor(),
                                            widest, factor_per_doubling(), cluster.ranks, notes);
}

std::unique_ptr<Fabric> unknown_fabric(const Interconnect& network, const std::string& path) {
  const FactorSpread spread = spread_of_factors(published_clusters(), path);
  return std::make_unique<CalibratedFabric>(
      "no probe", "", network, spread.mean, spread.half_width, 1, 0,
      std::vector<std::string>{"Exchanges: the model, times what the published clusters of the path " + path +
                               " took of it: the interval is as wide as clusters disagree. bnlab probe on "
                               "the cluster narrows it."});
}

}  // namespace bnlab
