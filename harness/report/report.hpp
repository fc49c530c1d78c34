// The report of an experiment: what came out for each cell of its matrix over the seeds, the declared
// contrasts, and sentences that follow from the numbers by rule. Tables and figures show these numbers and
// compute none.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/experiment/tuning.hpp"
#include "harness/report/cell_results.hpp"
#include "harness/report/contrast_results.hpp"
#include "harness/report/result_page.hpp"
#include "harness/report/status.hpp"
#include "harness/store/record.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {

inline constexpr const char* kMissing = "missing";

// What became of some runs, one per seed.
struct Scores {
  std::map<uint64_t, std::optional<Status>> outcomes;  // by seed; nothing for a run that is missing
  std::map<std::string, SeedValues> values;  // population -> the headline metric of the runs that ended ok
  std::set<uint64_t> stale;                  // the seeds whose runs would answer something else today
  std::set<uint64_t> stopped;                // the seeds whose runs stop_early ended

  int count(const std::optional<Status>& outcome) const;
  std::map<std::string, int> failures() const;  // outcome -> runs, without ok and missing ones
};

// A cell on one placement.
struct ReportRow {
  std::string placement;  // "2x4-cpu"; empty where nothing has run
  int ranks = 0;
  std::string device;
  // Why no throughput may be claimed: towers share ranks, other runs or people the machine, or the turns in
  // which it was to be timed failed.
  bool emulated = false, ran_beside_others = false, disturbed = false, timing_failed = false;
  Scores scores;
  std::map<std::string, SeedValues> values;  // by the key of a measure
  // Over the baseline's, same group and placement: by the mean logarithm where they were timed in turns, else
  // mean over mean.
  std::optional<double> relative_rate;
  std::string timed_against;       // the strategy that ran in turn with it, where nothing else differs
  bool timed_together = false;     // all strategies of a seed and setting in one world of ranks
  std::set<std::string> machines;  // processor, GPUs and threads

  const SeedValues& of(const std::string& measure) const;  // none where no run tells it
  // The mean over the seeds; nothing where it may not be claimed.
  std::optional<double> claimed_images_per_s() const;
};

// One cell of the matrix without the seed.
struct ReportCell : CellName {
  Json towers, batch_per_tower;
  Json populations;                 // asked for by the spec
  std::set<std::string> evaluated;  // a strategy without running statistics has "saved" only
  // Over all placements:
  Scores scores;
  FinalMetrics metrics;
  std::map<std::string, Curves> curves;
  std::vector<SiteNumbers> sites;  // none where the runs were not evaluated under precise
  std::vector<ReportRow> rows;     // at least one
};

// One cell beside a number that others have published.
struct PublishedResult {
  Published published;
  std::string cell;   // "8x2 sync"; where placements differ in the number, with its own, "8x2 sync 2x4-cpu"
  SeedValues values;  // one per seed; none for a quotient of means
  Interval here;      // over the seeds
};

struct ExperimentReport {
  std::string experiment, question, claim;
  std::string headline;              // "mean_iou"
  std::string samples;               // what a batch counts: "images", "clips", or "samples" where it is both
  std::vector<std::string> columns;  // "towers x batch", "strategy", ...
  std::vector<std::string> populations;
  std::string baseline;  // label of the strategy that costs are relative to; empty: none
  std::vector<ReportCell> cells;
  std::vector<ContrastResult> contrasts;
  std::vector<std::string> declared;  // sentences: when these comparisons were declared
  std::string declared_in_short;      // the same in a few words; empty where nothing is compared
  std::vector<PublishedResult> published;
  std::shared_ptr<const Tuning> tuning;  // null without
  std::string leaders;                   // a sentence on the highest means, which nobody declared; or ""
  std::vector<std::string>
      learned;      // plain sentences: what came of the comparisons, and beside published numbers
  ResultPage page;  // what people say of it, in documents that show it
  RunCounts runs;
  std::string roofline;               // what its shares are of; empty: nobody asked
  std::vector<std::string> problems;  // damaged files of its runs, which were left out
  bool marks_stale = true;            // in its tables; not in documents, which outlive this build
};

// Mean and interval over the seeds.
Interval over_seeds(const SeedValues& values);
// "0.712±0.010"; "-" of none
std::string plus_minus(const Interval& interval, int decimals = 3, double unit = 1,
                       const std::string& sign = "\u00b1");
SeedValues per_cent(SeedValues logarithms);

// `baseline`: the label of the strategy that costs are given relative to. Empty: the first of the matrix
// whose runs exchange no statistics, if it and another strategy have runs whose throughput counts, else none.
// Throws Error (usage) where no run has it. `declarations`: what was kept of them in the results folder.
ExperimentReport make_report(const Experiment& experiment, const std::vector<Record>& records,
                             const std::vector<Declaration>& declarations = {},
                             const std::string& baseline = "");

// Seconds that the machine of a row would take at least for a step of a run there; nothing where that is not
// known.
using ShortestStep = std::function<std::optional<double>(const RunSpec& run, const ReportRow& row)>;

// Fills in the shares of the roofline of rows whose throughput may be claimed. `note` says what they are.
void add_roofline(ExperimentReport& report, const Experiment& experiment, const ShortestStep& shortest,
                  const std::string& note);

// Where the runs lie beside published numbers: a sentence per result, and where a number has many results one
// for all of them.
std::vector<std::string> published_sentences(const std::vector<PublishedResult>& results);

// Text: aligned columns, at most 100 wide where the cells' names allow it.
std::string report_text(const ExperimentReport& report);
std::string report_markdown(const ExperimentReport& report);
// The blocks of a result page, whose question, answer and expectation people write above.
std::string summary_markdown(const ExperimentReport& report);  // the main table
std::string tables_markdown(const ExperimentReport& report);   // all tables, with their notes
// One page with all of it, the figures (SVG) of a folder, environments and commands; nothing outside it is
// loaded.
std::string report_html(const ExperimentReport& report, const std::vector<Record>& records,
                        const std::filesystem::path& figures);
// A row per run and placement, and per run that is missing; columns named as the keys of a record.
std::string report_csv(const Experiment& experiment, const std::vector<Record>& records);
Json report_json(const ExperimentReport& report);  // all of it, with the value of every seed; for figures

// What stands between the lines `<!-- MARK -->` and `<!-- end -->` of a document.
struct MarkedText {
  std::string mark, text;  // "table:NAME"
};
// Replaces all of these in `file`, or nothing: throws Error (usage) where it lacks one of the marks.
void replace_between_markers(const std::filesystem::path& file, const std::vector<MarkedText>& texts);

// The tables of a report and the sentences around them, from which its text, Markdown and page are made.

// What most of the declared comparisons compare: a row per side, the best first, and a column per group of
// cells; where there are many groups a row per group. Without comparisons all means. At most ten rows and
// five columns of numbers; none, and no note, where nothing has run.
struct MainTable {
  TextTable table;
  std::string note;  // what its numbers are, and how much is left out
};
MainTable main_table(const ExperimentReport& report);
TextTable cells_table(const ExperimentReport& report);      // a row per cell and placement
TextTable contrasts_table(const ExperimentReport& report);  // no rows where none is declared
TextTable tuning_table(const ExperimentReport& report);     // no rows before settings are chosen
TextTable length_table(const ExperimentReport& report);     // no rows where the length is not chosen

// What the tables cannot say by themselves.
std::vector<std::string> footnotes(const ExperimentReport& report);

// How much of the matrix is there.
std::string progress_sentence(const ExperimentReport& report);

}  // namespace bnlab
