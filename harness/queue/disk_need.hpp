// How much disk runs will take, judged by finished runs of their experiment.
#pragma once

#include <optional>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// Bytes of the folders that the runs leave: each as large as the mean of those with the same model that ended ok, or else of
// any model. Of the runs that make checkpoints, so many as go side by side hold two and write a third; each has the weights
// and at most two moments of each. Nothing where no run has ended ok.
std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side);

}  // namespace bnlab
