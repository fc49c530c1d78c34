// resnet: residual networks (He et al. 2016) as torchvision builds them, with its names.
//   stem: 7x7 convolution of stride 2 (or three 3x3, the first of stride 2: semseg's deep stem) - norm - ReLU - max pool 3x3
//   of stride 2; four stages of blocks, each but the first begins with stride 2
//   basic block: 3x3 - norm - ReLU - 3x3 - norm - add - ReLU; bottleneck: 1x1 - 3x3 (with the stride) - 1x1 to four times as
//   many channels; where shapes change, the skip is a 1x1 convolution and a norm
// At output stride 16 or 8 the last stages keep their size: their strides become dilations of 2 and 4. The first block of such a
// stage keeps the dilation before it, as torchvision has it, or is dilated like the others, as semseg has it
// (dilate_first_block); in basic blocks both convolutions are dilated.
#include <torch/types.h>

#include <array>

#include "harness/models/backbone.hpp"
#include "harness/models/conv_norm.hpp"

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
    if (depth != 18 && depth != 34 && depth != 50 && depth != 101) {
      problems.add("depth", "expected 18, 34, 50 or 101, got " + std::to_string(depth));
    }
  }

  bool bottleneck() const { return depth >= 50; }
  std::array<int64_t, 4> blocks() const {
    if (depth == 18) {
      return {2, 2, 2, 2};
    }
    return {3, 4, depth == 101 ? 23 : 6, 3};
  }
  int64_t stem_channels() const { return stem == Stem::deep ? 2 * width : width; }
  int64_t stage_channels(int64_t stage) const { return (width << stage) * (bottleneck() ? 4 : 1); }

  Channels feature_channels() const {
    return {stem_channels(), stage_channels(0), stage_channels(1), stage_channels(2), stage_channels(3)};
  }
  Channels norm_channels() const {
    Channels channels = {width, stem_channels()};
    for (int64_t stage = 0; stage < 4; ++stage) {
      channels.insert(channels.end(), {width << stage, stage_channels(stage)});
    }
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
    for (size_t i = 0; i < convs_.size(); ++i) {
      const bool last = i + 1 == convs_.size();
      y = norms_[i]->forward(convs_[i]->forward(y, {}, pass), last ? skip : at::Tensor(), pass);
    }
    return y;
  }

 private:
  void add(LayerMaker& layers, const std::string& name, ConvSite site) {
    const std::string n = std::to_string(convs_.size() + 1);
    site.name = name + ".conv" + n;
    site.fan = Fan::out;
    convs_.push_back(register_module("conv" + n, layers.conv(site)));
    norms_.push_back(register_module("bn" + n, layers.norm({name + ".bn" + n, site.out, Activation::relu})));
  }

  std::vector<std::shared_ptr<Layer>> convs_, norms_;
  std::shared_ptr<ConvNorm> downsample_;
};

class Stage : public torch::nn::Module {
 public:
  // The first block has the stride and `first_dilation`.
  Stage(LayerMaker& layers, const std::string& name, BlockShape shape, int64_t first_dilation,
        int64_t blocks) {
    for (int64_t b = 0; b < blocks; ++b) {
      BlockShape own = shape;
      if (b == 0) {
        own.dilation = first_dilation;
      } else {
        own.in = shape.out;
        own.stride = 1;
      }
      const std::string n = std::to_string(b);
      blocks_.push_back(register_module(n, std::make_shared<Block>(layers, name + "." + n, own)));
    }
  }

  at::Tensor forward(at::Tensor x, const Pass& pass) {
    for (const auto& block : blocks_) {
      x = block->forward(x, pass);
    }
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
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
      const BlockShape shape{in, options.width << s, out, stride, dilation, options.bottleneck()};
      stages_.push_back(register_module(
          stage, std::make_shared<Stage>(layers, path(name, stage), shape,
                                         options.dilate_first_block ? dilation : dilation_before,
                                         options.blocks()[static_cast<size_t>(s)])));
      in = out;
    }
  }

  Network::Maps forward(at::Tensor x, const Pass& pass) override {
    for (size_t i = 0; i < stem_convs_.size(); ++i) {
      x = stem_norms_[i]->forward(stem_convs_[i]->forward(x, {}, pass), {}, pass);
    }
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
    const std::string n = std::to_string(stem_convs_.size() + 1);
    site.name = path(name, "conv" + n);
    site.fan = Fan::out;
    stem_convs_.push_back(register_module("conv" + n, layers.conv(site)));
    stem_norms_.push_back(
        register_module("bn" + n, layers.norm({path(name, "bn" + n), site.out, Activation::relu})));
  }

  std::vector<std::shared_ptr<Layer>> stem_convs_, stem_norms_;
  std::vector<std::shared_ptr<Stage>> stages_;
};

class ResNet : public Backbone {
 public:
  using Options = resnet::Options;

  ResNet(const Options& options, const Context& context)
      : options_(options), output_stride_(context.output_stride) {}

  std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const override {
    return std::make_shared<ResNetTrunk>(layers, name, options_, output_stride_);
  }

 private:
  Options options_;
  int64_t output_stride_;
};

const Registered<Backbone> entry{{.name = "resnet",
                                  .summary = "residual network: depth 18, 34, 50 or 101, of any width",
                                  .source = "He et al. 2016; layers and names as in torchvision"},
                                 make<Backbone, ResNet>};

}  // namespace bnlab::resnet
