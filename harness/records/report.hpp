// The table of an experiment: what came out for each cell of its matrix over the seeds, the primary
// contrasts, and what was learned, derived from the numbers by rule.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/records/cell_records.hpp"
#include "harness/records/contrasts.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

// One cell of the matrix without the seed, on one placement.
struct ReportRow {
  std::vector<std::string> cell;  // one text per ExperimentReport::columns
  std::string strategy;           // its label
  std::string group;              // the cell without the strategy: rows of one group are compared
  std::string placement;          // "2x4-cpu"; empty where nothing has run
  int asked = 0, ok = 0, failed = 0;
  std::map<std::string, int> failures;          // outcome -> runs
  std::map<std::string, SeedValues> headline;   // population -> values
  std::optional<double> images_per_s;           // median over seeds; nothing where it may not be claimed
  std::optional<double> relative_images_per_s;  // to the baseline's of the same group and placement
  bool emulated = false, jobs = false;          // why it may not
  std::optional<double> peak_memory_bytes;      // largest over ranks, median over seeds
  // Of the strategy, statistics and shuffling, by one rank.
  std::optional<double> collectives_per_step, bytes_per_step;
  std::string remark;  // what the spec says of this strategy; may be empty
};

struct ExperimentReport {
  std::string experiment, question, claim;
  std::string headline;              // "mean_iou"
  std::vector<std::string> columns;  // of the cells: "towers x batch", "strategy", ...
  std::vector<std::string> populations;
  std::string baseline;  // label of the strategy that throughputs are relative to; empty: none
  std::vector<ReportRow> rows;
  std::vector<ContrastResult> contrasts;
  std::vector<std::string> learned;  // plain sentences
  RunCounts runs;
};

// `baseline`: a strategy's label; throughputs are then given relative to it too. Throws Error (usage) where
// no run has it.
ExperimentReport make_report(const Experiment& experiment, const std::vector<Record>& records,
                             const std::string& baseline = "");

// Text: aligned columns, at most 100 wide where the cells' names allow it.
std::string report_text(const ExperimentReport& report);
std::string report_markdown(const ExperimentReport& report);
Json report_json(const ExperimentReport& report);  // with the value of every seed

// Replaces what stands between the lines `<!-- table:NAME -->` and `<!-- end -->` of `file`.
// Throws Error (usage) where the file has no such markers.
void replace_between_markers(const std::filesystem::path& file, const std::string& name,
                             const std::string& text);

}  // namespace bnlab
