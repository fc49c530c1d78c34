// Partial matches: dotted keys and the values that a run must have there. Used by `exclude`, by the
// `at` of contrasts and by the command line.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/json.hpp"

namespace bnlab {

// Reports keys of `wanted` that no run spec has. Returns whether all are known.
bool check_keys(const Json& wanted, const std::string& path, Mistakes& mistakes);

// Why no run of `runs` matches `wanted`: names the key whose value no run has, with the values that
// there are. `path` is that of `wanted`.
void report_no_match(const Json& wanted, const std::vector<Json>& runs, const std::string& path,
                     Mistakes& mistakes);

}  // namespace bnlab
