// What is under way, and how far its experiments are: read from what their folders hold, told on a terminal,
// and as the page of `bnlab watch --html` (live.html).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/report/status.hpp"

namespace bnlab {

// A run with its curves.
struct LiveRun {
  using Points = std::vector<std::pair<int64_t, double>>;  // by step

  std::string experiment, run_id, placement;
  std::string strategy;  // its label; the run's id where the folder does not say
  // The cell without the strategy, "8x2, optimizer.lr=0.1"; "" where the spec has no such run.
  std::string group = "all";
  uint64_t seed = 0;
  std::optional<Status> ended;  // nothing: it is under way
  int64_t step = 0;
  std::optional<int64_t> steps;  // in the whole run, where its spec counts in steps
  std::optional<double> share;   // done, 0 to 1
  double elapsed_s = 0;          // when the last line was written
  Points loss, metric;
  std::string metric_name;  // "saved mean_iou": the first of its evaluations, under the first population
  std::string damaged;      // what its log holds that training has not written; empty if nothing
  std::string fault;        // what its log says last of a loss that is not finite; empty if all is well
  double quiet_s = 0;       // since its files were last written

  std::optional<double> seconds_left() const;
};

// The runs that have begun and have no record yet.
std::vector<LiveRun> live_runs(const std::filesystem::path& results, const std::string& experiment);

struct LiveExperiment {
  ExperimentStatus status;
  bool has_spec = false;
  std::vector<LiveRun> runs;               // those under way first
  std::optional<ExperimentReport> report;  // where its page is asked for, and the spec is known

  bool ended() const;
};

using EndedRuns = std::map<std::string, LiveRun>;  // by folder and start, so that their curves are read once

// `experiment`: its spec, null where none is known. `known`: null where the runs under way are enough;
// otherwise those that have ended are told too, and all that a page shows.
LiveExperiment look_at(const std::string& name, const std::filesystem::path& results,
                       const Experiment* experiment, EndedRuns* known);

// The values as a row of blocks of growing height, at most `width` of them, the latest at the right; where
// there are more values, each block is a mean.
std::string sparkline(const std::vector<double>& values, size_t width);

// What `bnlab watch` shows: a run with its curves, then how far the experiments are and why runs failed. No
// line is wider than `width`.
std::string live_text(const std::vector<LiveExperiment>& experiments, size_t width);
// One line: "RUN_ID 2x4-cpu  step 120/300  loss 0.312  mean_iou 0.51  12 s left".
std::string live_line(const LiveRun& run);
// `refresh_s`: seconds after which the browser loads the page again; 0: never.
std::string live_html(const std::vector<LiveExperiment>& experiments, double refresh_s);

}  // namespace bnlab
