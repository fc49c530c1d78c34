// The runs that choose settings for a matrix, before it.
#pragma once

#include "harness/launch/launch.hpp"

namespace bnlab {

// Nothing where the experiment has no `tune`, or its scores are kept already: it is settled then. Else the runs that tune are
// made like any others (in RESULTS/NAME-tuning), whole whatever part of the matrix is asked for, and the experiment is
// settled by them, unless some of them failed or were interrupted. Runs that other processes have are waited for. Where a launcher made the ranks, all of them call this,
// and rank 0's scores count.
LaunchSummary tune(Experiment& experiment, const LaunchOptions& options);

}  // namespace bnlab
