// vgg16: the convolutions of VGG-16 (Simonyan, Zisserman 2015) with a norm behind each, as torchvision's
// vgg16_bn: convolutions keep their bias, and `features.N` counts convolutions, norms, ReLUs and pools. The
// numbers are those of vgg16_bn whatever the strategy: with the strategy `none` this is vgg16 under the names
// of vgg16_bn. The maps are what the second to fifth group of convolutions give, and behind them the last
// pool.
#include "harness/models/backbones/pooled_trunk.hpp"

namespace bnlab::vgg16 {

struct Options {
  int64_t width = 64;

  void describe(OptionVisitor& option) {
    option("width", width, "channels of the first group; 64 is the published network")
        .at_least(1)
        .at_most(1024);
  }

  void check(const RunOutline& run, Problems& problems) const { PooledTrunk::check("vgg16", run, problems); }

  int64_t channels(int64_t level) const { return width << std::min<int64_t>(level, 3); }

  Channels feature_channels() const { return {2 * width, 4 * width, 8 * width, 8 * width, 8 * width}; }
  Channels norm_channels() const { return {width, 2 * width, 4 * width, 8 * width}; }
  std::vector<int64_t> output_strides() const { return {8, 16, 32}; }
};

class Vgg16Trunk : public PooledTrunk {
 public:
  Vgg16Trunk(LayerMaker& layers, const std::string& name, const Options& options, int64_t output_stride)
      : PooledTrunk(output_stride) {
    const auto room = register_module("features", std::make_shared<torch::nn::Module>());
    int64_t in = 3, number = 0;
    for (int64_t level = 0; level < 5; ++level) {
      const int64_t out = options.channels(level);
      for (int i = 0; i < (level < 2 ? 2 : 3); ++i) {
        add(layers, level, *room, path(name, "features"),
            {std::to_string(number), std::to_string(number + 1)},
            {.in = in, .out = out, .bias = true, .fan = Fan::out});
        in = out;
        number += 3;  // the ReLU is counted too
      }
      ++number;  // the pool
    }
  }
};

const Registered<Backbone> entry{
    {.name = "vgg16",
     .summary = "13 convolutions of VGG-16, of any width",
     .source = "Simonyan, Zisserman 2015; layers and names as in torchvision's vgg16_bn"},
    make<Backbone, BackboneOf<Vgg16Trunk, Options>>};

}  // namespace bnlab::vgg16
