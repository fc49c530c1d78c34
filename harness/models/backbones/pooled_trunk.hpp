// A trunk of six levels of 3x3 convolutions, each with norm and ReLU; before each level but the first, a 2x2
// max pool halves height and width (rounded down). At output stride 16 or 8 the last pools are left out and
// the convolutions behind them dilated instead. A backbone of this kind fills in the levels; a level may be
// empty.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"

namespace bnlab {

class PooledTrunk : public Trunk {
 public:
  static constexpr int64_t kLevels = 6;

  explicit PooledTrunk(int64_t output_stride) : output_stride_(output_stride) {}

  Network::Maps forward(at::Tensor x, const Pass& pass) override {
    Network::Maps maps;
    for (int64_t level = 0; level < kLevels; ++level) {
      x = recomputed({x}, pass, [this, level](const auto& inputs, const Pass& pass) {
        const bool pools = level > 0 && (int64_t{1} << level) <= output_stride_;
        return in_turn(levels_[static_cast<size_t>(level)],
                       pools ? at::max_pool2d(inputs[0], {2, 2}) : inputs[0], pass);
      });
      if (level > 0) maps.push_back(x);
    }
    return maps;
  }

  // Such a backbone refuses images of less than 32 pixels a side, of which five pools leave nothing.
  static void check(const std::string& backbone, const RunOutline& run, Problems& problems) {
    for (const auto& [height, width] : run.image_sizes) {
      if (height < 32 || width < 32) {
        problems.add("name", backbone + " halves the image five times and needs at least 32x32, got " +
                                 std::to_string(height) + "x" + std::to_string(width));
      }
    }
  }

 protected:
  // Registers a convolution and its norm in `room` as the last of a level. `name`: the path of `room`.
  void add(LayerMaker& layers, int64_t level, torch::nn::Module& room, const std::string& name,
           const ConvNormPair::Names& names, ConvSite site) {
    site.dilation = site.padding = std::max<int64_t>(1, (int64_t{1} << level) / output_stride_);
    levels_[static_cast<size_t>(level)].push_back(add_pair(room, layers, name, names, site));
  }

 private:
  int64_t output_stride_;
  std::array<std::vector<ConvNormPair>, kLevels> levels_;
};

}  // namespace bnlab
