#include "harness/prediction/validation.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "harness/prediction/clusters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string at_bytes(const Cluster& cluster, const Cluster::Point& point) {
  return cluster.name + ", " + significant(point.bytes, 6) + " B";
}

}  // namespace

double CheckedPrediction::factor_of_error() const {
  const double ratio = predicted.mid / measured;
  return std::max(ratio, 1 / ratio);
}

double CheckedPrediction::error() const {
  return std::abs(predicted.mid - measured) / measured;
}

std::vector<CheckedPrediction> clusters_without_a_probe() {
  std::vector<CheckedPrediction> checked;
  for (const Cluster& cluster : published_clusters()) {
    std::vector<Cluster> others = published_clusters();
    std::erase_if(others, [&](const Cluster& other) { return other.name == cluster.name; });
    const FactorSpread spread = spread_of_factors(others, cluster.path);
    double modelled = 0, measured = 0;  // geometric means over all its sizes
    for (const Cluster::Point& point : cluster.points) {
      modelled += std::log(cluster.modelled(point)) / static_cast<double>(cluster.points.size());
      measured += std::log(point.seconds) / static_cast<double>(cluster.points.size());
    }
    const double mid = spread.mean * std::exp(modelled);
    checked.push_back({.what = cluster.name,
                       .setting = "the other clusters: " + cluster.path,
                       .predicted = {mid / spread.half_width, mid, mid * spread.half_width},
                       .measured = std::exp(measured)});
  }
  return checked;
}

std::vector<CheckedPrediction> clusters_by_two_sizes() {
  std::vector<CheckedPrediction> checked;
  for (const Cluster& cluster : published_clusters()) {
    const std::vector<Cluster::Point>& points = cluster.points;
    for (size_t a = 0; a < points.size(); ++a) {
      for (size_t b = a + 1; b < points.size(); ++b) {
        for (size_t c = 0; c < points.size(); ++c) {
          const bool fitted = points[c].bytes == points[a].bytes || points[c].bytes == points[b].bytes;
          if (points[a].bytes == points[b].bytes || fitted) continue;
          Cluster fit = cluster;
          fit.points = {points[a], points[b]};
          const double mid = fit.factor() * cluster.modelled(points[c]);
          const double wide = std::max(factor_between_protocols(cluster.network, cluster.ranks), 1.0);
          checked.push_back(
              {.what = at_bytes(cluster, points[c]),
               .setting = significant(points[a].bytes, 6) + " and " + significant(points[b].bytes, 6) + " B",
               .predicted = {mid / wide, mid, mid * wide},
               .measured = points[c].seconds});
        }
      }
    }
  }
  return checked;
}

std::vector<CheckedPrediction> bandwidths_by_others() {
  constexpr double kBytes = 256e6;
  std::vector<CheckedPrediction> checked;
  for (const BusBandwidth& one : published_bandwidths()) {
    std::vector<BusBandwidth> others;
    std::ranges::copy_if(published_bandwidths(), std::back_inserter(others), [&](const BusBandwidth& other) {
      return other.kind() == one.kind() && &other != &one;
    });
    const FactorSpread spread = spread_of_bandwidths(others);
    const double mid = kBytes / spread.mean;
    checked.push_back({.what = one.about,
                       .setting = "the others: " + one.kind(),
                       .predicted = {mid / spread.half_width, mid, mid * spread.half_width},
                       .measured = kBytes / one.bytes_per_s});
  }
  return checked;
}

std::vector<CheckedPrediction> sweep_by_its_bandwidth() {
  const Sweep& sweep = published_sweep();
  const auto fabric = cluster_fabric(sweep.cluster);
  const int ranks = std::ranges::find(published_clusters(), sweep.cluster, &Cluster::name)->ranks;
  std::vector<CheckedPrediction> checked;
  for (const Cluster::Point& point : sweep.points) {
    checked.push_back({.what = sweep.cluster + ", " + significant(point.bytes / (1 << 20), 4) + " MiB",
                       .setting = "its largest messages",
                       .predicted = fabric->seconds("nccl", "all_reduce", point.bytes, ranks),
                       .measured = point.seconds});
  }
  return checked;
}

StepOptions options_for(const std::string& exchange, bool delayed, bool spare_cores) {
  // CPU ranks over sockets have a Reducer, which no added delay reaches; GPUs replay steps, and exchange
  // behind them.
  return {.overlaps_gradients = exchange == "sockets" && !delayed, .spare_cores = spare_cores};
}

bool has_spare_cores(const Json& fabric) {
  const Json& cores = fabric.at("environment").at("logical_cores");
  const int on_one_node = fabric.at("ranks").get<int>() / std::max(fabric.at("nodes").get<int>(), 1);
  return cores.is_number() && cores.get<int>() > on_one_node * fabric.at("threads_per_rank").get<int>();
}

std::vector<CheckedPrediction> steps_of_probe(const Json& probe, const std::string& file) {
  const auto fabric = probed_fabric(probe, file, factor_per_doubling());
  const Json& about = probe.at("fabric");
  const int ranks = about.at("ranks");
  const bool delayed =
      about.at("added_delay_s").get<double>() > 0 || about.at("added_bytes_per_s").get<double>() > 0;
  const bool spare = about.at("device") == "cuda" || has_spare_cores(about);
  std::vector<CheckedPrediction> checked;
  for (const Json& step : probe.at("steps")) {
    if (step.contains("refused")) continue;
    const StepProfile profile = read_profile(step);
    const StepPrediction prediction =
        predict_step(profile, *fabric, ranks, options_for(profile.exchange, delayed, spare));
    const std::string added =
        delayed ? ", " + significant(about.at("added_delay_s").get<double>() * 1e3, 3) + " ms added" : "";
    checked.push_back(
        {.what = profile.model + ", " + profile.strategy,
         .setting = std::to_string(ranks) + " rank" + (ranks == 1 ? "" : "s, " + profile.exchange + added),
         .predicted = prediction.step(),
         .measured = step.at("together_s").at("mean")});
  }
  return checked;
}

Quality quality_of(const std::vector<CheckedPrediction>& checked) {
  Quality quality;
  quality.count = checked.size();
  std::vector<double> factors, errors;
  for (const CheckedPrediction& one : checked) {
    factors.push_back(one.factor_of_error());
    errors.push_back(one.error());
    quality.in_interval += one.in_interval() ? 1 : 0;
    quality.worst_error = std::max(quality.worst_error, one.error());
  }
  quality.median_factor = median_of(factors);
  quality.median_error = median_of(errors);
  return quality;
}

}  // namespace bnlab
