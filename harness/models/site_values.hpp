// How many values of one channel an image has at each norm site. Found without a step: the network is passed
// shapes. The command line includes this header, which names nothing of LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

struct SiteValues {
  std::string name;
  int64_t channels = 0;
  int64_t values = 0;  // per channel of one image
};

// The norm sites that an image of this size (height, width) passes, in their order. A network's layers of its
// own may need all channels: of such a network the sites before these.
std::vector<SiteValues> site_values(const Json& model, const std::array<int64_t, 2>& size);

// The site with the fewest values, where statistics are poorest; null where there are no sites.
inline const SiteValues* poorest_of(const std::vector<SiteValues>& sites) {
  const auto found = std::ranges::min_element(sites, {}, &SiteValues::values);
  return found == sites.end() ? nullptr : &*found;
}

}  // namespace bnlab
