// One run of a spec: what its keys must agree on, and the RunSpec that they make.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// Mistakes between keys that are fine one by one. `run` may hold values of a wrong type, which are among
// those `reported` already.
void check_agreement(const Json& run, const Problems& reported, Problems& problems);

inline constexpr int64_t kMostTowers = 4096;

// What "towers" and "batch_per_tower" of a run mean together: a number is the samples of every tower, a list
// names each tower's. Nothing where one of them is missing or of a wrong type, or where there are more than
// kMostTowers.
std::optional<std::vector<int64_t>> samples_per_tower(const Json& run);

// One way of writing for what means the same: a list of equal samples per tower becomes the integer.
Json normalised(Json run);

// The run that a resolved object describes, with or without "placement". The object must be free of
// mistakes.
RunSpec make_run(const Json& run);

}  // namespace bnlab
