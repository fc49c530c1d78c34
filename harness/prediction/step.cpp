#include "harness/prediction/step.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <numeric>

namespace bnlab {
namespace {

constexpr double kFirstBucketBytes = 1 << 20, kBucketBytes = 25 << 20;  // as c10d's Reducer
constexpr double kUsualFloors = 1.4, kMostFloors = 2;
constexpr double kDecilesOfADeviation = 2.563;  // from the tenth to nine tenths of a normal distribution

bool of_gradients(const StepProfile::Exchange& exchange) {
  return exchange.purpose == "gradients";
}

// Gradients that meet while backward goes on: they are waited for as far as they take longer than it, and the
// last bucket in any case. An interval, because what goes on beside backward may also slow it.
Estimate overlapped(double bytes, const StepProfile& profile, const Fabric& fabric, int ranks,
                    bool spare_cores) {
  Estimate all, last;
  double left = bytes;
  for (double bucket = kFirstBucketBytes; left > 0; bucket = kBucketBytes) {
    last = fabric.seconds(profile.exchange, "all_reduce", std::min(left, bucket), ranks);
    all = all + last;
    left -= bucket;
  }
  const double window = spare_cores ? profile.backward : 0;
  const auto exposed = [&](double whole, double of_last) { return std::max(of_last, whole - window); };
  return {exposed(all.low, last.low), exposed(all.mid, last.mid), exposed(all.high, last.high)};
}

}  // namespace

bool StepProfile::exchanges_statistics() const {
  return !std::ranges::all_of(exchanges, of_gradients);
}

StepProfile read_profile(const Json& step) {
  StepProfile profile;
  profile.run = step.at("run");
  profile.strategy = step.at("strategy");
  profile.model = step.at("model");
  profile.exchange = step.value("exchange", "");
  profile.ranks = step.at("ranks");
  profile.images = step.at("images_per_rank");
  profile.refused = step.value("refused", "");
  if (!profile.refused.empty()) return profile;
  if (step.contains("own_s")) {
    const Json& own = step.at("own_s");
    const double low = own.at("p10"), mean = own.at("mean"), high = own.at("p90");
    profile.own = {std::min(low, mean), mean, std::max(high, mean)};  // means add up
    profile.deviation = (high - low) / kDecilesOfADeviation;
    if (step.contains("apart_s") && profile.ranks > 1)
      profile.deviation = step.at("apart_s").at("mean").get<double>() / expected_largest(profile.ranks);
    profile.backward = step.at("parts_s").is_null() ? 0 : step.at("parts_s").at("backward").get<double>();
    profile.peak_memory_bytes = step.at("peak_memory_bytes");
  }
  if (const Json operations = step.value("operations", Json()); !operations.is_null()) {
    profile.flops = operations.at("flops");
    profile.matrix_bytes = operations.at("matrix_bytes");
    profile.other_bytes = operations.at("other_bytes");
  }
  for (const Json& exchange : step.at("exchanges")) {
    profile.exchanges.push_back(
        {exchange.at("op"), exchange.at("purpose"), exchange.at("bytes"), exchange.at("count")});
  }
  return profile;
}

Estimate step_by_peaks(const StepProfile& profile, double flops_per_s, double bytes_per_s) {
  const double floor = std::max(profile.flops / flops_per_s, profile.matrix_bytes / bytes_per_s) +
                       profile.other_bytes / bytes_per_s;
  return {floor, kUsualFloors * floor, kMostFloors * floor};
}

double expected_largest(int ranks) {
  if (ranks < 2) return 0;
  // Blom's approximation of the largest normal order statistic, within 1 % from two numbers on.
  const double place = (ranks - 0.375) / (ranks + 0.25);
  return boost::math::quantile(boost::math::normal_distribution<double>(), place);
}

StepPrediction predict_step(const StepProfile& profile, const Fabric& fabric, int ranks,
                            const StepOptions& options) {
  StepPrediction prediction;
  prediction.own = profile.own;
  if (ranks < 2) return prediction;
  double waits = 0, gradient_bytes = 0;
  for (const StepProfile::Exchange& exchange : profile.exchanges) {
    if (of_gradients(exchange) && options.overlaps_gradients) {
      gradient_bytes += exchange.bytes * exchange.count;
      continue;
    }
    const Estimate time =
        exchange.count * fabric.seconds(profile.exchange, exchange.op, exchange.bytes, ranks);
    const double host = exchange.count * options.host_seconds;
    Estimate& sum = of_gradients(exchange) ? prediction.gradients : prediction.statistics;
    sum = sum + time + Estimate{host, host, host};
    waits += exchange.count;
  }
  if (gradient_bytes > 0) {
    prediction.gradients = overlapped(gradient_bytes, profile, fabric, ranks, options.spare_cores);
    waits += 1;
  }
  // At each exchange all wait for the slowest. A rank that is slow for a whole step is waited for once; one
  // that is so between two exchanges and no longer, in each part of a step anew, whose deviation is that of
  // the step by the root of waits.
  const double slowest = expected_largest(ranks);
  if (options.exchange_deviation) {
    const double wait = waits * *options.exchange_deviation * slowest;
    prediction.stragglers = {0, wait / 2, wait};
  } else {
    const double once = std::min(waits, 1.0) * profile.deviation * slowest;
    prediction.stragglers = {0, once, std::sqrt(std::max(waits, 1.0)) * once};
  }
  return prediction;
}

}  // namespace bnlab
