// The scores by which a matrix is tuned: taken from the records of the runs that tune, and kept beside the
// matrix's own records in RESULTS/EXPERIMENT/tuning.json, so that the choice stands with the results that
// rest on it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/tuning.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

inline constexpr const char* kTuningFile = "tuning.json";

// The file, or nothing where there is none. Throws Error (data) with the cure where it is damaged.
std::optional<Json> read_tuning(const std::filesystem::path& file);

// Of the runs that ended ok or diverged.
TuningScores scores_of(const Tuning& tuning, const std::vector<Record>& records);

// Of an experiment that they have settled; with the choice, for people, and with what made each of the runs
// that tuned, whose `records` may then go: the spec, and of each run its setting, inputs and times. Runs and
// scores that the file has of other specs stay where they are of the same metric. Without `records` the
// choice rests on the scores that are kept. Makes the folder if need be.
void keep_scores(const Experiment& experiment, const std::vector<Record>& records,
                 const std::filesystem::path& results);
// None where there is no file, or where it has another metric or population than the experiment's `tune`.
// Throws Error (data) where it cannot be read.
TuningScores kept_scores(const Experiment& experiment, const std::filesystem::path& results);

// As JSON, {"run id": score}, in which null is a run that diverged; and back. Throws Error (data), naming
// `file`.
Json scores_json(const TuningScores& scores);
TuningScores read_scores(const Json& json, const std::filesystem::path& file);

}  // namespace bnlab
