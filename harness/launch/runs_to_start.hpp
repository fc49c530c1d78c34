// Which of the runs that are asked for start, and what must be there before the first does.
#pragma once

#include <string>
#include <vector>

#include "harness/launch/placing.hpp"
#include "harness/launch/survey.hpp"

namespace bnlab {

// Looks at the data and weights that the runs read, and fills in PlacedRun::inputs. Returns what is missing
// of them, each message once: such runs cannot start.
std::vector<std::string> look_at_inputs(std::vector<PlacedRun>& runs, const LaunchRequest& request);

// Why runs that are to start cannot where they are placed, with the cure; each sentence once.
std::vector<std::string> misplaced(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states);

// Looks at inputs and records of the runs and returns the runs that start. The others are counted in
// `summary`, and what a killed process has left beside their folders is removed; damaged records are remarked
// upon. The spec and what the runs read are kept in the experiment's folder. Throws Error (usage) if files
// are missing that a run needs which is to start, if anything is wrong with their contents, or if a run
// cannot be where it is placed.
std::vector<PlacedRun> runs_to_start(const Experiment& experiment, std::vector<PlacedRun>& runs,
                                     const LaunchRequest& request, LaunchSummary& summary,
                                     std::vector<std::string>& remarks);

}  // namespace bnlab
