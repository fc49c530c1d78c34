// What the record tells of each norm site: how far its running statistics lie from recomputed ones, and how
// much of its input's variance lies between the towers.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "harness/models/site_values.hpp"
#include "harness/support/json.hpp"
#include "harness/training/trained_model.hpp"

namespace bnlab {

class SiteReport {
 public:
  explicit SiteReport(const TrainedModel& model) : model_(model) {}

  // Keeps the running statistics that the network's buffers hold, under the population's name. between_sets:
  // what RunningStatistics::load_into_buffers has returned.
  void keep(const std::string& population, const std::vector<double>& between_sets);

  // One object per site: {"name", "channels", "values_per_image"}, the last as `values` tells it. After an
  // evaluation under `saved` and `precise`, where the site has running statistics, also
  // - "saved_mean_error": |mean_saved - mean_precise| / sqrt(var_precise), the mean over the channels
  // - "saved_variance_error": |ln(var_saved / var_precise)|, likewise
  // - "between_sets": RunningStatistics::load_into_buffers, when statistics were last recomputed
  // Synchronises.
  Json sites(const std::vector<SiteValues>& values) const;

 private:
  struct Pair {
    at::Tensor mean, var;  // [C] float64; undefined where the site has none
  };

  const TrainedModel& model_;
  std::map<std::string, std::vector<Pair>> kept_;  // by population, one per site
  std::vector<double> between_sets_;               // by site with running statistics
};

}  // namespace bnlab
