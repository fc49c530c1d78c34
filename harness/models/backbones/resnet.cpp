// resnet: residual networks (He et al. 2016) as torchvision builds them, with its names.
//   stem: 7x7 convolution of stride 2 (or three 3x3, the first of stride 2: semseg's deep stem) - norm - ReLU
//   - max pool 3x3 of stride 2; four stages of blocks, each but the first begins with stride 2
//   basic block: 3x3 - norm - ReLU - 3x3 - norm - add - ReLU; bottleneck: 1x1 - 3x3 (with the stride) - 1x1
//   to four times as many channels; where shapes change, the skip is a 1x1 convolution and a norm
// At output stride 16 or 8 the last stages keep their size: their strides become dilations of 2 and 4. The
// first block of such a stage keeps the dilation before it, as torchvision has it, or is dilated like the
// others, as semseg has it (dilate_first_block); in basic blocks both convolutions are dilated.
#include <torch/types.h>

#include <array>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"

namespace bnlab::resnet {

BNLAB_CHOICE(Stem, plain, deep)

struct Options {
  int64_t depth = 18;
  Stem stem = Stem::plain;
  int64_t width = 64;
  bool dilate_first_block = false;

  void describe(OptionVisitor& option) {
    option("depth", depth, "layers: 18, 34 (basic blocks), 50 or 101 (bottlenecks)");
    option("stem", stem, "plain: one 7x7 convolution; deep: three 3x3, the last with twice the width");
    option("width", width, "channels of the first stage; 64 is the published network")
        .at_least(1)
        .at_most(1024);
    option("dilate_first_block", dilate_first_block,
           "whether the first block of a dilated stage is dilated as the stage's others are, as in semseg");
  }

  void check(const RunOutline&, Problems& problems) const {
    if (depth != 18 && depth != 34 && depth != 50 && depth != 101)
      problems.add("depth", "expected 18, 34, 50 or 101, got " + std::to_string(depth));
  }

  bool bottleneck() const { return depth >= 50; }
  std::array<int64_t, 4> blocks() const {
    if (depth == 18) return {2, 2, 2, 2};
    return {3, 4, depth == 101 ? 23 : 6, 3};
  }
  int64_t stem_channels() const { return stem == Stem::deep ? 2 * width : width; }
  int64_t stage_channels(int64_t stage) const { return (width << stage) * (bottleneck() ? 4 : 1); }

  Channels feature_channels() const {
    return {stem_channels(), stage_channels(0), stage_channels(1), stage_channels(2), stage_channels(3)};
  }
  Channels norm_channels() const {
    Channels channels = {width, stem_channels()};
    for (int64_t stage = 0; stage < 4; ++stage)
      channels.insert(channels.end(), {width << stage, stage_channels(stage)});
    return channels;
  }
  std::vector<int64_t> output_strides() const { return {8, 16, 32}; }
};

struct BlockShape {
  int64_t in, width, out, stride, dilation;
  bool bottleneck;
};

class Block : public torch::nn::Module {
 public:
  Block(LayerMaker& layers, const std::string& name, const BlockShape& shape) {
    const auto [in, width, out, stride, dilation, bottleneck] = shape;
    const ConvSite spatial{
        .in = width, .out = width, .stride = stride, .padding = dilation, .dilation = dilation};
    if (bottleneck) {
      add(layers, name, {.in = in, .out = width, .kernel = 1, .padding = 0});
      add(layers, name, spatial);
      add(layers, name, {.in = width, .out = out, .kernel = 1, .padding = 0});
    } else {
      ConvSite first = spatial, second = spatial;
      first.in = in;
      second.stride = 1;
      add(layers, name, first);
      add(layers, name, second);
    }
    if (stride != 1 || in != out) {
      const ConvSite site{.in = in, .out = out, .kernel = 1, .stride = stride, .padding = 0, .fan = Fan::out};
      downsample_ = register_module(
          "downsample", std::make_shared<ConvNorm>(layers, name + ".downsample", site, Activation::none));
    }
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const at::Tensor skip = downsample_ ? downsample_->forward(x, {}, pass) : x;
    at::Tensor y = x;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const bool last = i + 1 == pairs_.size();
      y = pairs_[i].forward(y, last ? skip : at::Tensor(), pass);
    }
    return y;
  }

 private:
  void add(LayerMaker& layers, const std::string& name, ConvSite site) {
    const std::string n = std::to_string(pairs_.size() + 1);
    site.fan = Fan::out;
    pairs_.push_back(add_pair(*this, layers, name, {"conv" + n, "bn" + n}, site));
  }

  std::vector<ConvNormPair> pairs_;
  std::shared_ptr<ConvNorm> downsample_;
};

class ResNetTrunk : public Trunk {
 public:
  ResNetTrunk(LayerMaker& layers, const std::string& name, const Options& options, int64_t output_stride) {
    if (options.stem == Stem::plain) {
      add_stem(layers, name, {.in = 3, .out = options.width, .kernel = 7, .stride = 2, .padding = 3});
    } else {
      add_stem(layers, name, {.in = 3, .out = options.width, .stride = 2});
      add_stem(layers, name, {.in = options.width, .out = options.width});
      add_stem(layers, name, {.in = options.width, .out = options.stem_channels()});
    }
    int64_t in = options.stem_channels(), total_stride = 4, dilation = 1;
    for (int64_t s = 0; s < 4; ++s) {
      const int64_t dilation_before = dilation;
      int64_t stride = s == 0 ? 1 : 2;
      if (total_stride * stride > output_stride) {
        dilation *= stride;
        stride = 1;
      }
      total_stride *= stride;
      const std::string stage = "layer" + std::to_string(s + 1);
      const int64_t out = options.stage_channels(s);
      const auto block = [&](int64_t place, const std::string& block_name) {
        BlockShape shape{.in = out,
                         .width = options.width << s,
                         .out = out,
                         .stride = 1,
                         .dilation = dilation,
                         .bottleneck = options.bottleneck()};
        if (place == 0) {
          shape.in = in;
          shape.stride = stride;
          shape.dilation = options.dilate_first_block ? dilation : dilation_before;
        }
        return std::make_shared<Block>(layers, block_name, shape);
      };
      stages_.push_back(
          register_module(stage, std::make_shared<ResidualStage<Block>>(
                                     path(name, stage), options.blocks()[static_cast<size_t>(s)], block)));
      in = out;
    }
  }

  Network::Maps forward(at::Tensor x, const Pass& pass) override {
    x = recomputed({x}, pass,
                   [this](const auto& inputs, const Pass& pass) { return in_turn(stem_, inputs[0], pass); });
    Network::Maps maps = {x};
    x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (const auto& stage : stages_) {
      x = stage->forward(x, pass);
      maps.push_back(x);
    }
    return maps;
  }

 private:
  void add_stem(LayerMaker& layers, const std::string& name, ConvSite site) {
    const std::string n = std::to_string(stem_.size() + 1);
    site.fan = Fan::out;
    stem_.push_back(add_pair(*this, layers, name, {"conv" + n, "bn" + n}, site));
  }

  std::vector<ConvNormPair> stem_;
  std::vector<std::shared_ptr<ResidualStage<Block>>> stages_;
};

const Registered<Backbone> entry{{.name = "resnet",
                                  .summary = "residual network: depth 18, 34, 50 or 101, of any width",
                                  .source = "He et al. 2016; layers and names as in torchvision"},
                                 make<Backbone, BackboneOf<ResNetTrunk, Options>>};

}  // namespace bnlab::resnet
