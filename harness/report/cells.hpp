// The cells of a matrix (a cell is a run without its seed): what they are called, the columns of their table,
// the records that lie in them, and the numbers of these by seed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// How a cell is called, and which cells it is compared with.
struct CellName {
  std::vector<std::string> cell;  // one text per column: {"8x2", "0.1", "sync"}
  std::string strategy;           // its label
  // The cell without its strategy and what moves together with it: "8x2, optimizer.lr=0.1", or "all". The
  // strategies of one group are compared with each other.
  std::string group;
  // What sets the group apart from others beside towers, batch and placement: {"shards": "iid"}.
  std::map<std::string, std::string> conditions;
};

// A column of the table of cells, which shows the values of some keys, "8x2".
struct CellColumn {
  std::string title;
  std::vector<std::string> keys;
  bool in_group;  // false: it moves together with the strategy
};

// The columns but for the strategy, which is the last.
std::vector<CellColumn> columns_of(const Experiment& experiment);

CellName name_of(const RunSpec& run, const std::vector<CellColumn>& columns);

// The cell without some dotted keys, which a contrast compares: "8x2, sync", or "all".
std::string group_apart_from(const std::vector<std::string>& compared, const RunSpec& run,
                             const std::vector<CellColumn>& columns);

// A value that stands at a dotted key, components by their labels: "none" for null.
std::string text_at(const std::string& key, const Json& value);

using SeedValues = std::vector<std::pair<uint64_t, double>>;  // (seed, value), by seed
// For the seeds that both have: what `of` makes of their two values, a - b unless told otherwise.
SeedValues pairwise(const SeedValues& a, const SeedValues& b,
                    const std::function<double(double, double)>& of = std::minus());

std::vector<double> without_seeds(const SeedValues& values);

// The seeds of those records that are stale.
std::set<uint64_t> stale_seeds(const std::vector<const Record*>& records);
// The seeds of those that stop_early ended before their last step.
std::set<uint64_t> stopped_seeds(const std::vector<const Record*>& records);

// One cell with the runs that were asked for and the finished records found, by placement. Borrows from the
// experiment and the records.
struct CellRecords : CellName {
  std::vector<const RunSpec*> runs;
  std::map<std::string, std::vector<const Record*>> placements;

  // Each seed once, on the placement that counts (counts_before).
  std::vector<const Record*> one_per_seed() const;
  // Whether one of its runs fits the rule.
  bool lies_at(const Json& at) const;
  // Those of some of its records whose runs fit the rule.
  std::vector<const Record*> records_at(const Json& at, const std::vector<const Record*>& records) const;
};

struct CellTable {
  std::vector<std::string>
      columns;  // the axes other than the seed ("towers x batch", "optimizer.lr"), "strategy"
  std::vector<CellRecords> cells;  // in the order of the experiment's runs
  std::vector<CellColumn> axes;    // what the columns but for the strategy show
};
CellTable collect_cells(const Experiment& experiment, const std::vector<Record>& records);

SeedValues values_by_seed(const std::vector<const Record*>& records, const std::string& metric,
                          const std::string& population);
// Any number of those records that ended ok and have it.
SeedValues values_by_seed(const std::vector<const Record*>& records,
                          const std::function<std::optional<double>(const Record&)>& number);

}  // namespace bnlab
