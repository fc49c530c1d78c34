// Rules that a run may fit: dotted keys and the values that it must have there. `matches` of spec.hpp is the
// one matcher, for `exclude`, for the `at` of contrasts and for `--only`; here is what is said of rules that
// fit nothing. The runs are given as RunSpec::with_placement().
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// Reports keys of `wanted` that no run spec has. Returns whether all are known.
bool check_keys(const Json& wanted, const std::string& path, Mistakes& mistakes);

// The dotted keys of values that a rule names: "model.base" of {"model": {"base": 8}}.
std::vector<std::string> named_keys(const Json& rule);

// "" where some run has `wanted` at `key`, else which values there are: "no run has 4; there are: 8, 2".
std::string no_match(const std::string& key, const Json& wanted, const std::vector<Json>& runs);

// Reports why no run of `runs` matches `wanted`: the key whose value no run has, with the values that there
// are. `path` is that of `wanted`.
void report_no_match(const Json& wanted, const std::vector<Json>& runs, const std::string& path,
                     Mistakes& mistakes);

}  // namespace bnlab
