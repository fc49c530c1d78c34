// The records of an experiment, sorted into the cells of its matrix (a cell is a run without its seed), and the
// numbers that are compared.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/report/cell_columns.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

using SeedValues = std::vector<std::pair<uint64_t, double>>;  // (seed, value), by seed
// a - b for the seeds that both have.
SeedValues paired_differences(const SeedValues& a, const SeedValues& b);

std::vector<double> without_seeds(const SeedValues& values);
// The seeds of those records that are stale.
std::set<uint64_t> stale_seeds(const std::vector<const Record*>& records);

// One cell with the runs that were asked for and the finished records found, by placement. Borrows from the
// experiment and the records.
struct CellRecords : CellName {
  std::vector<const RunSpec*> runs;
  std::map<std::string, std::vector<const Record*>> placements;

  // The placement changes no result, so each seed counts once: a run that ended ok before one that failed, then
  // one on real ranks before an emulated one.
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
