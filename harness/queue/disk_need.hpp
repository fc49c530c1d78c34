// How much disk runs will take, judged by finished runs of their experiment.
#pragma once

#include <optional>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// The bytes of the folders that these runs leave. Each is taken to be as large as the mean of the folders
// with the same model that ended ok, or of all of them where there is none with this model. Runs that make
// checkpoints hold two and write a third while they are under way, `side_by_side` of them at once; a
// checkpoint has the weights and at most two moments of each. Returns nothing where no run has ended ok.
std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side);

}  // namespace bnlab
