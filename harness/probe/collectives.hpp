// The collectives that bnlab uses, by the bytes they carry: how long each takes, with its results checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"

namespace bnlab {

// A row for every collective and size, [{"op", "bytes", "size_bytes", "time_s", "after_work_s", ...}]: what
// the keys say stands in README.md of this folder. The rows are the same on every rank, and every rank calls
// this. `exchange`: its name, for the rows. Throws Error (communication) where a result is wrong.
Json measure_collectives(World& world, const std::string& exchange, double seconds, int64_t largest_bytes);

}  // namespace bnlab
