// Two folders of results side by side: another machine, another version of the code, or specs that differ in
// some keys. Their runs are paired, and the seeds of a cell are its replicates.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/pairing.hpp"
#include "harness/report/statistics.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// B as seen from A, by the 95 % t interval of the paired differences. Costs that differ by less than the
// tolerance are equal; so is what differs by nothing at all. One pair alone is undecided.
BNLAB_CHOICE(Change, better, worse, equal, undecided)

struct ComparedMetric {
  std::string metric;   // the headline, or the key of a measure
  Interval a, b;        // over the pairs
  Interval difference;  // b - a, pair by pair
  Change change = Change::undecided;

  bool few_seeds() const { return difference.n < kFewestSeeds; }
  bool overlaps() const;  // the intervals of a and b
};

struct ComparedCell {
  std::string name;  // "sync 8x2, optimizer.lr=0.1"
  std::vector<ComparedMetric> metrics;
};

struct Comparison {
  std::vector<DifferingKey> spec;         // with one value in all of A and another in all of B
  std::vector<DifferingKey> environment;  // machine, versions, revision of the code
  std::vector<ComparedCell> cells;
  int broken = 0;                         // runs that ended ok in A and failed in B
  std::vector<std::string> reasons;       // why they did
  std::vector<std::string> notes;         // what is not compared, and why
  int runs_a = 0, runs_b = 0, pairs = 0;  // finished runs

  // How far times that were taken in turns repeat: the cells that have them, those whose images/s over those
  // of the run beside them differ by at most kRepeats, and those where the intervals of A and B overlap.
  struct Repeated {
    int cells = 0, within = 0, overlapping = 0;
  };
  Repeated repeated() const;

  // Metrics that became worse, and runs that broke; nothing where A and B were not asked the same: where keys
  // of their specs other than the placement differ.
  std::optional<int> regressions() const;
};

inline constexpr double kRepeats = 0.03;

// `tolerance`: the share by which costs may grow before it counts.
Comparison compare(const std::vector<Record>& a, const std::vector<Record>& b, double tolerance);

// Rows of one kind only where `only` names it; the rest is said in any case.
std::string comparison_text(const Comparison& comparison, std::optional<Change> only);
Json comparison_json(const Comparison& comparison, std::optional<Change> only);

}  // namespace bnlab
