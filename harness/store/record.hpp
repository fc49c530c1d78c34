// A record is what is kept of one run (results/record.md explains every key). This is the only place that
// composes one; what is read back is a thin value over the JSON.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/measures.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

inline constexpr int kRecordSchemaVersion = 1;

// How a run ended. `error` is a clear refusal by a strategy or task; `crashed` is anything unforeseen.
BNLAB_CHOICE(Status, ok, diverged, oom, timeout, crashed, error, interrupted)
inline std::string name(Status status) {
  return name_of(status);
}
Status status_named(const std::string& name);  // throws Error (data) for an unknown name
// Whether a run that ended so has a result: it trained all its steps, or as far as its loss was finite.
inline bool has_result(Status status) {
  return status == Status::ok || status == Status::diverged;
}

struct Outcome {
  Status status = Status::ok;
  std::string message = {};                // empty: null in the record
  std::optional<int> rank = {};            // the rank that failed, where one can be named
  std::string signal = {};                 // "SIGKILL"; empty: null
  std::vector<std::string> log_tail = {};  // last lines of the failed rank's log
};

// How a run went.
struct RunEnd {
  std::string started_at;  // now_utc() at the start
  double wall_time_s = 0;
  Outcome outcome;
  Json result = {};  // null where the run did not finish
  std::vector<std::string> notes = {};
  std::map<std::string, std::string> variables = {};  // what the ranks had beside those of this process
  int runs_before = 0;                                // made by the same processes
  std::vector<std::string> lost_work = {};            // notes on what of an earlier attempt could not be used
};

// All that a record is composed of but what the build knows of itself.
struct RunAccount : RunEnd {
  std::string experiment;
  std::string command;  // as typed
  RunSpec spec;
  Placement placement;
  std::string backend;  // "gloo", "nccl", or "none" in a world of one that joined nothing
  int threads_per_rank = 1;
  int jobs = 1;                    // independent runs side by side at the time
  std::string launcher = "bnlab";  // "torchrun", "mpirun", "srun"
  Json environment;                // as environment.hpp has it, without `variables`
  Json inputs;                     // as inputs.hpp has it; null where nobody looked
};

// `value` with every number that is not finite replaced by null, since JSON has neither NaN nor infinity; for
// each a note such as "result.train_loss was NaN" is appended to `notes`. `path` names `value` itself.
Json finite(const Json& value, std::vector<std::string>& notes, const std::string& path = "");

// The record as JSON. Numbers that are not finite are null, each with a note.
Json compose_record(const RunAccount& account);

// "2026-11-21T06:30:00Z"
std::string now_utc();

// The value at a dotted path below a JSON object, null if absent.
const Json& value_at(const Json& object, const std::string& dotted_path);

class Record {
 public:
  Record() = default;
  // Throws Error (data), naming `file` and key, unless `value` is a record of a known schema version whose
  // values are of the types that its schema says. `folder` is the run's, where `file` does not lie in it.
  Record(Json value, std::filesystem::path file, std::filesystem::path folder = {});

  const Json& json() const { return value_; }
  // Or its line, "results/tradeoff/runs.jsonl:12".
  const std::filesystem::path& file() const { return file_; }
  const std::filesystem::path& folder() const { return folder_; }

  std::string experiment() const { return at("experiment"); }
  std::string run_id() const { return at("run_id"); }
  std::string placement() const { return at("placement.name"); }  // "2x4-cpu"
  int ranks() const { return at("placement.ranks"); }
  std::string device() const { return at("placement.device"); }
  std::string strategy_label() const { return at("strategy_label"); }
  uint64_t seed() const { return at("spec.seed"); }
  Status status() const { return status_named(at("outcome.status")); }
  double wall_time_s() const { return at("wall_time_s"); }
  // The value at a dotted path below the record ("result.throughput"), null if absent.
  const Json& at(const std::string& path) const { return value_at(value_, path); }
  // The same where a number is expected: nothing if absent or null.
  std::optional<double> number(const std::string& path) const;

  bool finished() const { return status() != Status::interrupted; }  // all outcomes but interrupted
  bool failed() const { return finished() && status() != Status::ok; }
  // Why stop_early ended the run before its last step, "at chance" or "diverging"; "" where it did not.
  std::string why_stopped_early() const;
  // Why the run would answer something else today, in words, or "" if it would not: what it computes with
  // gives other numbers (harness/numerics/panel.hpp), or data or weights are others, as far as compare_inputs
  // was told.
  std::string why_stale() const;
  // The same of the numbers alone, whether today's code has confirmed the record or not.
  std::string why_other_numerics() const;
  // Today's code has repeated runs like this one (records.hpp).
  void confirm() { confirmed_ = true; }
  bool confirmed() const { return confirmed_; }
  bool stale() const { return !why_stale().empty(); }
  // `today`: what the run would read now (inputs.hpp); null where that is not known.
  void compare_inputs(const Json& today);
  // Takes the times of this run from the record of the run in whose world it was timed (timing.with).
  void take_times(const Json& of_other);
  // Whether others used the machine while the run was timed in turns (harness/training/timing).
  bool disturbed() const;
  // Whether the run was or is to be timed in the world of another one.
  bool timed_elsewhere() const;
  // Whether the run had the machine to itself while its times were taken, as far as its timing, if there is
  // one, has seen.
  bool had_the_machine() const;
  // Whether its throughput may be claimed: it had the machine to itself, with one tower on each rank.
  bool throughput_counts() const;

 private:
  Json value_;
  std::filesystem::path file_, folder_;
  std::string changed_inputs_;  // in words
  bool confirmed_ = false;
};

// A number of a run that ended ok, where it counts of it.
std::optional<double> number_of(const Record& record, const Measure& measure);
// The same by its key, or a score of the last evaluation under a population.
std::optional<double> metric_of(const Record& record, const std::string& metric,
                                const std::string& population = "");

// What a run answers: all of its record that neither the code, the machine nor the moment decides.
Json answer_of(const Record& record);

// Whether `record` is one of `run`: it has its id, and the placement that the run asks for, if any.
bool is_of(const Record& record, const RunSpec& run);

// The record of a run folder, else the one that is kept in the ledger, or nothing if there is none yet. A
// damaged one throws Error (data).
std::optional<Record> find_record(const std::filesystem::path& folder);
// Whether a run folder has a record of a run that has a result. A damaged one is none.
bool holds_result(const std::filesystem::path& folder);
// Throws Error (data) unless the record lies in RUN_ID/PLACEMENT, its own.
void check_place(const Record& record);
// Throws Error (data) unless the record's spec is that of the run.
void check_spec(const Record& record, const RunSpec& run);

}  // namespace bnlab
