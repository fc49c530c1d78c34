// The page of `bnlab watch --html`: what runs, what came of it, and what failed, in one file that refreshes
// itself in a browser. Nothing outside it is loaded.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/live_runs.hpp"
#include "harness/report/report.hpp"

namespace bnlab {

// A run as the charts show it.
struct RunCurve {
  std::string strategy, group;  // its label; the cell without it ("8x2, optimizer.lr=0.1", or "all")
  uint64_t seed = 0;
  std::optional<Status> ended;                             // nothing: it is under way
  using Points = std::vector<std::pair<int64_t, double>>;  // by step
  Points loss, metric;
};

// All that the page shows of an experiment.
struct LiveExperiment {
  ExperimentStatus status;
  std::vector<LiveRun> under_way;
  std::vector<RunCurve> curves;
  std::optional<ExperimentReport> report;  // where the spec is known
  std::string metric;                      // of the curves: "saved mean_iou"

  bool ended() const { return under_way.empty() && status.claimed.empty() && status.missing() <= 0; }
};

// Looks at experiments again and again; the curves of runs that have ended are read once.
class LiveView {
 public:
  // `experiment`: its spec, null where none is known.
  LiveExperiment look(const std::string& name, const std::filesystem::path& results,
                      const Experiment* experiment);

 private:
  std::map<std::string, LiveRun> ended_;  // finished runs, by folder and start
};

// `refresh_s`: seconds after which the browser loads the page again; 0: never.
std::string live_html(const std::vector<LiveExperiment>& experiments, double refresh_s);

}  // namespace bnlab
