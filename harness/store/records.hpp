// The records of an experiment; and results of older code that count as today's, because today's code has
// repeated some of them to the last digit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

// All records of an experiment, sorted by run id and placement; none if the folder does not exist. They are
// compared with what their runs were last seen to read, and those that were timed in the world of another
// run have its times. Records that cannot be read or lie in a wrong folder
// are left out and described in `problems`, if given.
std::vector<Record> list_records(const std::filesystem::path& results, const std::string& experiment,
                                 std::vector<std::string>* problems = nullptr);

// The records of each run id, in the order given. Borrows from `records`.
std::map<std::string, std::vector<const Record*>> by_run_id(const std::vector<Record>& records);

// Where a run is computed changes no result, so one of its placements counts: that of a run that ended ok
// before one that failed, and that before one that was interrupted; then one that is up to date, then one on
// real ranks before an emulated one, then the first by name.
bool counts_before(const Record& one, const Record& other);

inline constexpr const char* kConfirmedFile = "confirmed.json";

// The repeated runs of an experiment, from RESULTS/EXPERIMENT/confirmed.json. Each stands for its cell: the
// runs of the same spec but for the seed, on the same placement, that the same code has computed.
class Confirmations {
 public:
  explicit Confirmations(const std::filesystem::path& experiment_folder);
  // Whether a run of the record's cell was repeated with the same answer by code that computes what this
  // build does.
  bool cover(const Record& record) const;
  // One that was made before of the same cell, code and build gives way.
  void add(const Record& repeated);
  void remove(const Record& repeated);
  void keep() const;

 private:
  std::filesystem::path file_;
  Json entries_ = Json::array();  // {"run", "placement", "cell", "then", "now", "evidence"}
};

struct Confirmed {
  int repeated = 0;                    // runs that both folders have,
  std::vector<std::string> differing;  // those of them that answer otherwise, each a sentence
  std::vector<std::string> left_out;   // repeated by other code than this build, each a sentence
  int covered = 0;                     // runs of older code that count as today's
  int uncovered = 0;                   // runs of older code that do not
  int timed = 0;                       // covered runs whose throughput counts
};

// Compares the runs of `again`, which this build has computed, with those of `into`, and keeps in `into`
// which of them are equal. A cell of which one repeated run differs is not confirmed. Throws Error (usage)
// where the folders, both of the form RESULTS/EXPERIMENT, have no run in common.
Confirmed confirm_results(const std::filesystem::path& into, const std::filesystem::path& again);

}  // namespace bnlab
