// Runs that have begun and have no record yet, from what their folders hold: how far they are, and their
// curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/status.hpp"

namespace bnlab {

struct LiveRun {
  std::string experiment, run_id, placement;
  std::string strategy;  // its label; "" where the folder does not say
  std::optional<uint64_t> seed;
  int64_t step = 0;
  std::optional<int64_t> steps;  // of the whole run, where its spec counts in steps
  std::optional<double> share;   // done, 0 to 1
  double elapsed_s = 0;          // when the last line was written
  std::vector<double> loss;
  std::vector<int64_t> loss_steps;
  std::string metric;  // "mean_iou": the first number of its evaluations, under the first population
  std::vector<double> metric_values;
  std::vector<int64_t> metric_steps;
  std::string damaged;  // what its log holds that training has not written; empty if nothing
  std::string fault;    // what its log says last of a loss that is not finite; empty if all is well
  double quiet_s = 0;   // since its files were last written

  std::optional<double> seconds_left() const;
};

std::vector<LiveRun> live_runs(const std::filesystem::path& results, const std::string& experiment);

// The same of one folder, of a run that has ended too.
LiveRun run_in(const std::string& experiment, const std::filesystem::path& folder);

// "step 120/300  12 s left".
std::string step_text(const LiveRun& run);
// What seems wrong with it; "" if nothing does.
std::string faults_text(const LiveRun& run);

// The values as a row of blocks of growing height, at most `width` of them, the latest at the right; where
// there are more values, each block is a mean.
std::string sparkline(const std::vector<double>& values, size_t width);

// The page that `bnlab watch` shows: a run with its curves, then how far the experiments are and why runs
// failed. No line is wider than `width`.
std::string live_page(const std::vector<LiveRun>& runs, const std::vector<ExperimentStatus>& experiments,
                      size_t width);
// One line: "RUN_ID 2x4-cpu  step 120/300  loss 0.312  mean_iou 0.51  12 s left".
std::string live_line(const LiveRun& run);

}  // namespace bnlab
