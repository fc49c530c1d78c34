// What the runs to start will take of the disk, and what is left of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/launch/placing.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// Bytes that are left where the results go, whether the folder is there yet or not; nothing where the disk
// does not tell.
std::optional<double> free_disk(const std::string& results);
// Whether so few bytes are left that runs cannot start: fewer than they need, or than 64 MiB where that is
// more or not known. What else they need is a guess, and no reason to refuse.
bool is_disk_full(double left, std::optional<double> need);
std::string mib_needed(double bytes);  // "12 MiB", rounded up
std::string mib_left(double bytes);    // the same, rounded down

// The bytes of the folders that these runs leave, judged by finished runs of their experiment. Each is taken
// to be as large as the mean of the folders with the same model that ended ok, or of all of them where there
// is none with this model. Runs that make checkpoints hold two and write a third while they are under way,
// `side_by_side` of them at once; a checkpoint has the weights and at most two moments of each. Returns
// nothing where no run has ended ok.
std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side);

// Throws Error (environment) where too few bytes are left for these runs to start. Where fewer are left than
// they will need it remarks upon it.
void look_at_disk(const Experiment& experiment, const std::vector<PlacedRun>& start,
                  const LaunchRequest& request, std::vector<std::string>& remarks);

}  // namespace bnlab
