#include "harness/prediction/clusters.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

const Json& file() {
  static const Json parsed = Json::parse(kPublishedClusters);
  return parsed;
}

Cluster read_cluster(const Json& json) {
  Cluster cluster{json.at("name"),
                  json.at("about"),
                  json.at("source"),
                  json.value("failure", ""),
                  json.at("year"),
                  json.at("ranks"),
                  {},
                  {}};
  cluster.network = {json.at("algorithm"), json.at("link"), json.at("per_node")};
  for (const Json& point : json.at("points")) {
    cluster.points.push_back({point.at("bytes"), point.at("us").get<double>() * 1e-6});
  }
  return cluster;
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

// The model with a factor; `half_width` is that of the factor's interval.
class CalibratedFabric : public Fabric {
 public:
  CalibratedFabric(std::string name, Interconnect network, double factor, double half_width,
                   double per_doubling, int ranks, std::vector<std::string> notes)
      : name_(std::move(name)),
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
    const double mid = factor_ * modelled_seconds(network_, op, bytes, ranks);
    return {mid / wide, mid, mid * wide};
  }

 private:
  std::string name_;
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

const Json& known_failures() {
  return file().at("failures");
}

FactorSpread spread_of_factors(const std::vector<Cluster>& clusters) {
  const std::vector<double> logs =
      mapped(clusters, [](const Cluster& cluster) { return std::log(cluster.factor()); });
  const auto n = static_cast<double>(logs.size());
  double mean = 0, squares = 0;
  for (const double log : logs) mean += log / n;
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const double deviation = std::sqrt(squares / (n - 1) * (1 + 1 / n));
  const boost::math::students_t distribution(n - 1);
  return {std::exp(mean), std::exp(deviation * boost::math::quantile(distribution, 0.95))};
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
  double widest = 1;  // of its own points about its factor
  for (const Cluster::Point& point : cluster.points) {
    const double off = point.seconds / cluster.modelled(point) / cluster.factor();
    widest = std::max({widest, off, 1 / off});
  }
  widest = std::max(widest, factor_per_doubling());
  std::vector<std::string> notes{"Exchanges: the model, times the factor of " + cluster.name + " (" +
                                 cluster.about + "; " + cluster.source + ", " + std::to_string(cluster.year) +
                                 ")."};
  if (!cluster.failure.empty()) notes.push_back("Known failure of the model: " + cluster.failure);
  return std::make_unique<CalibratedFabric>(cluster.name, cluster.network, cluster.factor(), widest,
                                            factor_per_doubling(), cluster.ranks, notes);
}

std::unique_ptr<Fabric> unknown_fabric(const Interconnect& network) {
  const FactorSpread spread = spread_of_factors(published_clusters());
  return std::make_unique<CalibratedFabric>(
      "no probe", network, spread.mean, spread.half_width, 1, 0,
      std::vector<std::string>{
          "Exchanges: the model, times what the published clusters took of it: the interval "
          "is as wide as they disagree. bnlab probe on the cluster narrows it."});
}

}  // namespace bnlab
