// The collectives that bnlab uses, by the bytes they carry: how long each takes, with its results checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// Seconds of calls of one collective with tensors of one size, each the mean over the ranks.
struct CollectiveTimes {
  int64_t size_bytes = 0;  // as nccl-tests count it
  std::vector<double> alone, after_work, last_rank, in_graph;
};
// By collective and by the bytes that each rank hands over.
using CollectiveSamples = std::map<std::string, std::map<int64_t, CollectiveTimes>>;

// Measures every collective at every size, and adds to `samples` what it has measured: a machine is not as
// fast at one time as at another, so that what is measured in several rounds says more than in one. Every
// rank calls this and gets the same. `exchange`: its name, for messages. Throws Error (communication) where a
// result is wrong.
void measure_collectives(World& world, const std::string& exchange, double seconds, int64_t largest_bytes,
                         CollectiveSamples& samples);

// A row for every collective and size, [{"op", "bytes", "size_bytes", "time_s", "after_work_s", ...}]: what
// the keys say stands in README.md of this folder.
Json rows_of(const CollectiveSamples& samples, const std::string& exchange, int ranks);

}  // namespace bnlab
