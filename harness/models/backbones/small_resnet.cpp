// small_resnet: the residual networks for images of 32x32 of He et al. 2016, section 4.2, with torchvision's
// names.
//   stem: 3x3 convolution - norm - ReLU; three stages of (depth - 2) / 6 basic blocks with width, 2 width and
//   4 width channels; the second and third begin with stride 2
//   block: 3x3 - norm - ReLU - 3x3 - norm - add - ReLU
// Where shapes change, the skip is every second pixel, with channels of zeros in equal numbers before and
// behind its own (option A of the paper), so that it has no parameters.
#include <torch/types.h>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"

namespace bnlab::small_resnet {

struct Options {
  int64_t depth = 20;
  int64_t width = 16;

  void describe(OptionVisitor& option) {
    option("depth", depth, "layers: 6n + 2 for n blocks in each stage").at_least(8).at_most(1202);
    option("width", width, "channels of the first stage; 16 is the published network")
        .at_least(1)
        .at_most(1024);
  }

  void check(const RunOutline&, Problems& problems) const {
    if (depth % 6 != 2) {
      problems.add("depth",
                   "expected 6n + 2 (8, 14, 20, 32, 44, 56, 110, ...), got " + std::to_string(depth));
    }
  }

  // The stages give the last three maps, the stem the others: no map is smaller than a quarter of the image.
  Channels feature_channels() const { return {width, width, width, 2 * width, 4 * width}; }
  Channels norm_channels() const { return {width, 2 * width, 4 * width}; }
  std::vector<int64_t> output_strides() const { return {4}; }
};

class Block : public torch::nn::Module {
 public:
  Block(LayerMaker& layers, const std::string& name, int64_t in, int64_t out)
      : stride_(in == out ? 1 : 2),
        before_((out - in) / 2),
        behind_(out - in - before_),
        first_(add_pair(*this, layers, name, {"conv1", "bn1"}, {.in = in, .out = out, .stride = stride_})),
        second_(add_pair(*this, layers, name, {"conv2", "bn2"}, {.in = out, .out = out})) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    return second_.forward(first_.forward(x, {}, pass), skip(x), pass);
  }

 private:
  at::Tensor skip(const at::Tensor& x) const {
    if (stride_ == 1) return x;
    const at::Tensor sparse = x.slice(2, 0, x.size(2), stride_).slice(3, 0, x.size(3), stride_);
    return at::constant_pad_nd(sparse, {0, 0, 0, 0, before_, behind_});
  }

  int64_t stride_, before_, behind_;  // channels of zeros before and behind those of the input
  ConvNormPair first_, second_;
};

class SmallResNetTrunk : public Trunk {
 public:
  SmallResNetTrunk(LayerMaker& layers, const std::string& name, const Options& options,
                   int64_t /*output_stride*/)
      : stem_(add_pair(*this, layers, name, {"conv1", "bn1"}, {.in = 3, .out = options.width})) {
    int64_t in = options.width;
    for (const char* stage : {"layer1", "layer2", "layer3"}) {
      const int64_t out = stages_.empty() ? in : 2 * in;
      const auto block = [&](int64_t place, const std::string& block_name) {
        return std::make_shared<Block>(layers, block_name, place == 0 ? in : out, out);
      };
      stages_.push_back(register_module(
          stage, std::make_shared<ResidualStage<Block>>(path(name, stage), (options.depth - 2) / 6, block)));
      in = out;
    }
  }

  Network::Maps forward(at::Tensor x, const Pass& pass) override {
    x = recomputed({x}, pass, [this](const auto& inputs, const Pass& pass) {
      return stem_.forward(inputs[0], {}, pass);
    });
    Network::Maps maps = {x, x};
    for (const auto& stage : stages_) {
      x = stage->forward(x, pass);
      maps.push_back(x);
    }
    return maps;
  }

 private:
  ConvNormPair stem_;
  std::vector<std::shared_ptr<ResidualStage<Block>>> stages_;
};

const Registered<Backbone> entry{
    {.name = "small_resnet",
     .summary = "residual network for images of 32x32, for classification and clips",
     .source = "He et al. 2016, section 4.2, with option A of its skips"},
    make<Backbone, BackboneOf<SmallResNetTrunk, Options>>};

}  // namespace bnlab::small_resnet
