// Claims that nobody will withdraw any more.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/launch/placing.hpp"

namespace bnlab {

// Removes the claims that processes have left which were killed after they had published a run, or, where any
// placement will do, during an attempt on another one than that on which the run is `ok`. Who takes the claim
// of a finished run clears up after such a process; it can be taken once the process is dead, or has been
// silent for so long that anybody may take it.
void remove_dead_claims(const std::string& experiment, const std::vector<PlacedRun>& finished,
                        const std::map<std::string, std::string>& ok, const LaunchRequest& request);

}  // namespace bnlab
