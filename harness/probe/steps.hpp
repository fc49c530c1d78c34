// Training steps of a run, timed: by itself in a world whose other ranks do not exist, and beside that in a
// real one. Needs no LibTorch to include.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"
#include "harness/placement.hpp"

namespace bnlab {

class World;

// A training step of a run on one rank of a world of so many, whose other ranks do not exist: its own work,
// its memory and what it exchanges. Refusals of the strategy are in the answer. At most about
// `seconds`; 0: what it exchanges is all that counts, and its times say little.
Json own_step(const RunSpec& run, int ranks, Device device, const std::string& data_dir, double seconds);

// What has been measured of the steps of one run.
struct StepSamples {
  Json step;  // what a step is, or why the run is refused; null before the first round
  std::vector<double> own, together;  // seconds of a step, each the mean over the ranks
  std::vector<double> apart;          // seconds by which the slowest rank's own step is above that mean
};

// Measures the step of own_step() in turns with the same step in the real world, and adds to
// `samples`. Each rank does its own work at the same time as the others. Called by every rank, which gets the
// same.
void measure_steps(const RunSpec& run, World& world, const std::string& data_dir, double seconds,
                   StepSamples& samples);

// own_step() with {"together_s": the times in the real world, ...}.
Json row_of(const StepSamples& samples);

}  // namespace bnlab
