// Norm sites by themselves: how fast their sweeps move memory, beside a copy, and what each route of the
// statistics costs a site; what launching work costs.
#pragma once

#include "harness/communicator/world.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// {"copy_bytes_per_s", "norm_forward_bytes_per_s", "norm_backward_bytes_per_s", "launch_s"} of one rank while
// all do the same; null where no strategy is registered. Called by every rank, the same answer on all.
Json measure_kernels(World& world, double seconds);

// A row for each strategy with a route, each of its routes and some numbers of channels: [{"strategy",
// "channels", "alone_s", "together_s", "exchange_s"}], a forward and a backward pass of one site.
Json measure_routes(World& world, const std::string& exchange, double seconds);

// What a pass of one norm site hands over as one of so many ranks, each collective with its bytes, or why it
// is refused. Two numbers of ranks with one answer have one at every site of a network.
std::string exchanges_of_a_site(const Json& strategy, int64_t channels, int64_t side, int ranks);

}  // namespace bnlab
