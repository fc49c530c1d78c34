// The variables that ranks run with, most of them for speed: how threads wait, memory, several ranks on one
// GPU.
#pragma once

#include <map>
#include <string>

namespace bnlab {

// The variables with their values. A value that this process has already is kept, except that threads always
// wait without spinning (OMP_WAIT_POLICY=PASSIVE), whatever the user has set.
std::map<std::string, std::string> rank_settings(bool shared_gpus = false);

// Gives these settings to this process, a rank that another launcher has started. Libraries read the
// variables once, at their start, so where one of them has another value, or none, the process becomes this
// program anew, with all of them. Throws Error (environment) if it cannot.
void start_anew_with(const std::map<std::string, std::string>& settings);

// Those of the settings that this process does not have, or has with another value.
std::map<std::string, std::string> settings_to_change(const std::map<std::string, std::string>& settings);

}  // namespace bnlab
