// The variables that ranks run with, most of them for speed: waiting, memory, several ranks on one GPU.
#pragma once

#include <map>
#include <string>

namespace bnlab {

// What this process has of them counts, but for the way of waiting.
std::map<std::string, std::string> rank_settings(bool shared_gpus = false);

// For a rank that another launcher has started: libraries read these variables once, at their start. So where one is
// missing, the process becomes this program anew, with all of them. Throws Error (environment) if it cannot.
void start_anew_with(const std::map<std::string, std::string>& settings);

}  // namespace bnlab
