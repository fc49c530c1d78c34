// Norm sites that see one value per channel of an image, as behind the mean of a whole map: a strategy whose
// sets are single images has nothing to normalise by there, and a training step of it is refused. Found
// without a step: the network is passed shapes, and the strategy is asked at these sites alone. The command
// line includes this header, which names nothing of LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

struct SiteValues {
  std::string name;
  int64_t channels = 0;
  int64_t values = 0;  // per channel of one image
};

// The norm sites that an image of this size (height, width) passes, in their order.
std::vector<SiteValues> site_values(const Json& model, const std::array<int64_t, 2>& size);

// With what a training step of this run is refused, and what helps; "" where it is not, or where that cannot
// be told before the run: of clips, and of images whose size the options of the task do not tell.
std::string single_value_refusal(const RunSpec& run);

}  // namespace bnlab
