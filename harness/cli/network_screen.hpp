// What `explain` and `cost` say first of a network that somebody has exported: its norm sites, the poorest
// of them, what three strategies exchange there and what that takes on GPUs, and a spec to go on with.
// Nothing is trained for it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct NetworkScreen {
  Json json;  // null for a network of bnlab's own
  std::string text;
};

// model: resolved; size: height and width of the images.
NetworkScreen network_screen(const Json& model, const std::array<int64_t, 2>& size, int64_t batch_per_tower);
// The text for the first of the runs whose network somebody has exported; "" where there is none.
std::string network_screen(const std::vector<RunSpec>& runs);

}  // namespace bnlab
