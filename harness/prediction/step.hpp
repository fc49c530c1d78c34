// The training step of a strategy on so many ranks: the rank's own work, the exchanges that it waits for, and
// the slowest of all ranks at each of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/prediction/fabric.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// One rank's step without the others (harness/probe/steps.hpp): measured, or counted and without its times.
struct StepProfile {
  struct Exchange {
    std::string op, purpose;
    double bytes = 0;
    double count = 1;  // per step
  };
  std::string run, strategy, model, exchange;  // `exchange`: nccl, shared_memory or sockets
  int ranks = 1;
  double images = 1;     // per rank
  Estimate own;          // seconds: the mean between the tenth and nine tenths of the samples
  double deviation = 0;  // seconds from one rank to the others, or without a probe from one step to the next
  double backward = 0;   // seconds of the backward pass
  double peak_memory_bytes = 0;
  double flops = 0, matrix_bytes = 0, other_bytes = 0;  // per step (counting/operations.hpp); 0: not known
  std::vector<Exchange> exchanges;
  std::string refused;  // why there is none

  bool exchanges_statistics() const;
  bool is_timed() const { return own.mid > 0; }
};

// From what own_step() or a probe says of it.
StepProfile read_profile(const Json& step);

struct StepOptions {
  bool overlaps_gradients = true;  // with backward, as a Reducer does; else they meet behind it
  bool spare_cores = true;         // for that: GPUs, or cores that no rank computes on
  double host_seconds = 0;         // to launch an exchange, where no graph does
  // Of the ranks at an exchange, where the deviation of the profile is not that of the machine asked about.
  std::optional<double> exchange_deviation = {};
};

struct StepPrediction {
  Estimate own, statistics, gradients, stragglers;  // seconds that a step takes longer by each

  Estimate step() const { return own + statistics + gradients + stragglers; }
  Estimate exposed() const { return statistics + gradients + stragglers; }
};

StepPrediction predict_step(const StepProfile& profile, const Fabric& fabric, int ranks,
                            const StepOptions& options);

// A rank's own step on a device of which the peaks alone are known: from the floor that they set to twice as
// much. What is published of trainings with large batches lies between (README.md).
Estimate step_by_peaks(const StepProfile& profile, double flops_per_s, double bytes_per_s);

// The expected largest of so many numbers from the standard normal distribution.
double expected_largest(int ranks);

}  // namespace bnlab
