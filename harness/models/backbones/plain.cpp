// plain: the encoder of the model `unet` with six levels: level l has base 2^l channels and is twice [3x3
// convolution - norm - ReLU]; a 2x2 max pool halves the size between levels. The maps are those of the levels
// behind the first.
#include "harness/models/backbones/pooled_trunk.hpp"

namespace bnlab::plain {

struct Options {
  int64_t base = 16;

  void describe(OptionVisitor& option) {
    option("base", base, "channels of the first level; each level has twice those of the one before")
        .at_least(1)
        .at_most(1024);
  }

  void check(const RunOutline& run, Problems& problems) const { PooledTrunk::check("plain", run, problems); }

  Channels feature_channels() const {
    Channels channels;
    for (int64_t level = 1; level < PooledTrunk::kLevels; ++level) channels.push_back(base << level);
    return channels;
  }
  Channels norm_channels() const {
    Channels channels = feature_channels();
    channels.push_back(base);
    return channels;
  }
  std::vector<int64_t> output_strides() const { return {8, 16, 32}; }
};

class PlainTrunk : public PooledTrunk {
 public:
  PlainTrunk(LayerMaker& layers, const std::string& name, const Options& options, int64_t output_stride)
      : PooledTrunk(output_stride) {
    int64_t in = 3;
    for (int64_t level = 0; level < kLevels; ++level) {
      const std::string part = "encoder" + std::to_string(level);
      const auto room = register_module(part, std::make_shared<torch::nn::Module>());
      for (const int i : {1, 2}) {
        const std::string n = std::to_string(i);
        add(layers, level, *room, path(name, part), {"conv" + n, "norm" + n},
            {.in = in, .out = options.base << level});
        in = options.base << level;
      }
    }
  }
};

const Registered<Backbone> entry{
    {.name = "plain", .summary = "the encoder of unet, with six levels", .source = "Ronneberger et al. 2015"},
    make<Backbone, BackboneOf<PlainTrunk, Options>>};

}  // namespace bnlab::plain
