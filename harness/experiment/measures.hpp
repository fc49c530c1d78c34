// Every number of a record that tables, reports and specs name, in one table that Python reads, too:
// scripts/python/bnlab/measures.json. Whoever shows, compares or checks such a number walks the table. Scores
// such as mean_iou are not in it: the task names them, and more is better of all. Needs no LibTorch.
#pragma once

#include <string>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

inline constexpr const char *kImagesPerS = "images_per_s", *kStepMs = "step_ms";

// Of runs that ended ok: of all of them, of those whose throughput may be claimed, or of those that had the
// machine to themselves with several towers on a rank.
BNLAB_CHOICE(CountsIf, ok, claimed, emulated)
// Whether the table of cells has a column of it: never, always, where a row has one, or the report a baseline
// or a roofline.
BNLAB_CHOICE(ShownIf, never, always, any_row, baseline, roofline)

struct Measure {
  std::string key, column, title, axis, shown_as, note;
  std::vector<std::string> path;
  double times = 1, size = 1;
  int decimals = 3, shown_decimals = 0;
  CountsIf counts_if = CountsIf::ok;
  ShownIf shown_if = ShownIf::never;
  bool largest_of_ranks = false, of_all_runs = false, more_is_better = true, is_logarithm = false,
       in_reports = true, in_specs = false, compared = false, has_interval = false;

  void describe(OptionVisitor& option) {
    option("key", key, "its name in reports and specs; none: a column of the table of runs alone");
    option("column", column, "its title in the table of runs, as CSV and in Python; none: not there");
    option("path", path, "where it stands in a record; of several their sum; none: a report computes it");
    option("times", times, "by which a report multiplies it");
    option("largest_of_ranks", largest_of_ranks,
           "the record has one for each rank, of which the largest counts");
    option("counts_if", counts_if, "of which runs it counts");
    option("of_all_runs", of_all_runs,
           "a row has none unless all of its runs that may claim images/s tell it");
    option("title", title, "what it is called where it is compared, with its unit");
    option("axis", axis, "the same in a figure, where it is called otherwise");
    option("size", size, "of that unit");
    option("decimals", decimals, "in that unit");
    option("more_is_better", more_is_better, "else less is");
    option("is_logarithm", is_logarithm, "of a ratio, which tables show in per cent");
    option("in_reports", in_reports, "each row of a report has it, per cell and placement");
    option("in_specs", in_specs, "contrasts, tuning and published numbers may name it");
    option("compared", compared, "bnlab compare compares it");
    option("shown_if", shown_if, "whether the table of cells has a column of it");
    option("shown_as", shown_as, "the title of that column, with a line break");
    option("shown_decimals", shown_decimals, "of the mean there");
    option("has_interval", has_interval, "the half-width stands behind that mean");
    option("note", note, "what is said below that table where a row has it");
  }
  bool is_of_rows() const { return in_reports && !key.empty(); }
};

const std::vector<Measure>& measures();
// Null for a score.
const Measure* find_measure(const std::string& key);
// Of a score one that has its name, and no unit.
Measure measure_of(const std::string& metric);

// Whether a metric is a throughput or a memory, which depend on the placement, and not a score.
inline bool is_cost(const std::string& metric) {
  return find_measure(metric) != nullptr;
}
inline bool is_throughput(const std::string& metric) {
  return measure_of(metric).counts_if == CountsIf::claimed;
}

}  // namespace bnlab
