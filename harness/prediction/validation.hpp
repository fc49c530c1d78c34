// How good the predictions are: those of exchanges by the published clusters, each predicted without its own
// times; those of steps by probes that have measured the steps too.
#pragma once

#include <string>
#include <vector>

#include "harness/prediction/step.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct CheckedPrediction {
  std::string what;     // the cluster or step
  std::string setting;  // by what it was predicted
  Estimate predicted;   // seconds
  double measured = 0;  // seconds

  double factor_of_error() const;  // at least 1
  double error() const;            // |predicted - measured| / measured
  bool in_interval() const { return predicted.low <= measured && measured <= predicted.high; }
};

// Each cluster by the factors of all others, as without a probe.
std::vector<CheckedPrediction> clusters_without_a_probe();
// Each size of a cluster by a factor that is fitted on two of its other sizes, as with a short probe.
std::vector<CheckedPrediction> clusters_by_two_sizes();
// A large all_reduce of each published bandwidth, by the bandwidths of the others of its kind.
std::vector<CheckedPrediction> bandwidths_by_others();
// Each size of the published sweep, by its cluster's small messages and the bandwidth of its large ones.
std::vector<CheckedPrediction> sweep_by_its_bandwidth();
// Each step of a probe, by the probe's own exchanges.
std::vector<CheckedPrediction> steps_of_probe(const Json& probe, const std::string& file);

struct Quality {
  size_t count = 0;
  double median_factor = 1, median_error = 0, worst_error = 0;
  size_t in_interval = 0;
};
Quality quality_of(const std::vector<CheckedPrediction>& checked);

// How the gradients of a run meet on the ranks of a fabric: `exchange` as a probe names it.
StepOptions options_for(const std::string& exchange, bool delayed, bool spare_cores);
// Whether a node of a probe's fabric has more cores than its ranks have threads.
bool has_spare_cores(const Json& fabric);

}  // namespace bnlab
