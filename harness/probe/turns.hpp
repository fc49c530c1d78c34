// What measurements share: a clock for work on a device, samples of all ranks, and numbers that all ranks
// take from rank 0, lest one of them measures longer than the others.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/support/json.hpp"
#include "harness/support/quantile.hpp"

namespace bnlab {

double seconds_now();

// How long `work` takes: on a GPU between two events on the current stream, once the device has been waited
// for.
double seconds_of(at::Device device, const std::function<void()>& work);

void wait_for_device(at::Device device);

// Rank 0's number, on every rank.
int64_t agreed(int64_t own, at::Device device, Communicator& communicator);

// How often something that takes `once` seconds is done in `seconds`: at least `fewest`, at most `most`
// times.
int64_t repeats_within(double seconds, double once, int64_t fewest, int64_t most);

void append(std::vector<double>& all, const std::vector<double>& more);

// {"samples", "mean", "p10", "p50", "p90", "p95", "p99"} in seconds.
Json spread_of(std::vector<double> samples);

// Sample by sample the mean over the ranks, the smallest of them, which is that of the last rank to come, and
// the largest.
// Called by every rank with as many samples.
struct OverRanks {
  std::vector<double> mean, smallest, largest;
};
OverRanks over_ranks(const std::vector<double>& own, at::Device device, Communicator& communicator);

}  // namespace bnlab
