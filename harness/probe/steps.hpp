// Training steps of a run, timed: by itself in a world whose other ranks do not exist, and beside that in a
// real one. Needs no LibTorch to include.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/placement.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class World;

// What a training step of a run hands over on one rank of a world of so many, and with `operations` what it
// computes and moves: counted in steps on images as small as the network takes, and on as many more for what
// grows with their size. Refusals of the strategy are in the answer.
Json counted_step(const RunSpec& run, int ranks, const std::string& data_dir, bool operations);

// Numbers of ranks with one answer have one counted_step() but for the number.
std::string kind_of_exchanges(const RunSpec& run, int ranks);

// The same with the rank's own work and its memory, measured for about `seconds`.
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
