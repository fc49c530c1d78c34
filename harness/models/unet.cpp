// unet(base, levels): Ronneberger et al. 2015, with padding and nearest upsampling. Encoder level l has
// base 2^l channels; every block is twice [3x3 convolution -> norm -> ReLU]; skips are concatenated behind
// the upsampled maps; the head is a 1x1 convolution to the classes.
#include <torch/types.h>

#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"

namespace bnlab::unet {

struct Options {
  int64_t base = 16;
  int64_t levels = 3;

  void describe(OptionVisitor& option) {
    option("base", base, "channels of the first level").at_least(1).at_most(1024);
    option("levels", levels, "resolutions; each halves height and width").at_least(1).at_most(8);
  }

  int64_t image_multiple() const { return int64_t{1} << (levels - 1); }

  // "" where every level can be halved, else what is wrong with the size.
  std::string size_problem(int64_t height, int64_t width) const {
    const int64_t step = image_multiple();
    return height % step == 0 && width % step == 0
               ? ""
               : "unet with " + std::to_string(levels) +
                     " levels needs images whose height and width are multiples of " + std::to_string(step) +
                     ", got " + std::to_string(height) + "x" + std::to_string(width);
  }

  void check(const RunOutline& run, Problems& problems) const {
    for (const auto& [height, width] : run.image_sizes)
      if (const std::string problem = size_problem(height, width); !problem.empty())
        problems.add("levels", problem);
  }

  std::vector<int64_t> norm_channels() const {
    std::vector<int64_t> channels;
    for (int64_t l = 0; l < levels; ++l) channels.push_back(base << l);
    return channels;
  }
};

class Block : public torch::nn::Module {
 public:
  Block(LayerMaker& layers, const std::string& name, int64_t in, int64_t out) {
    for (int i = 1; i <= 2; ++i) {
      const std::string n = std::to_string(i);
      pairs_.push_back(
          add_pair(*this, layers, name, {"conv" + n, "norm" + n}, {.in = i == 1 ? in : out, .out = out}));
    }
  }

  at::Tensor forward(at::Tensor x, const Pass& pass) const { return in_turn(pairs_, std::move(x), pass); }

  // Of the map below, which is brought to the size of a skip and stands before it. Two blocks (recomputed):
  // the joined maps are the largest of all, and are there for the first convolution alone.
  at::Tensor forward_joined(const at::Tensor& below, const at::Tensor& skip, const Pass& pass) const {
    const at::Tensor x = recomputed({below, skip}, pass, [this](const auto& inputs, const Pass& pass) {
      at::Tensor joined = at::cat({resized(inputs[0], inputs[1], Resizing::nearest), inputs[1]}, 1);
      return pairs_[0].forward(std::move(joined), {}, pass);
    });
    return recomputed({x}, pass, [this](const auto& inputs, const Pass& pass) {
      return pairs_[1].forward(inputs[0], {}, pass);
    });
  }

 private:
  std::vector<ConvNormPair> pairs_;
};

class UNetNetwork : public Network {
 public:
  UNetNetwork(LayerMaker& layers, const Options& options, int64_t classes) {
    const auto [base, levels] = options;
    int64_t channels = 3;
    for (int64_t l = 0; l < levels; ++l) {
      down_.push_back(add_block(layers, "encoder", l, channels, base << l));
      channels = base << l;
    }
    for (int64_t l = levels - 2; l >= 0; --l) {
      up_.push_back(add_block(layers, "decoder", l, channels + (base << l), base << l));
      channels = base << l;
    }
    last_ = register_module("head", layers.conv({.name = "head",
                                                 .in = channels,
                                                 .out = classes,
                                                 .kernel = 1,
                                                 .padding = 0,
                                                 .norm_follows = false}));
  }

  Maps features(at::Tensor x, const Pass& pass) override {
    Maps skips;
    for (size_t l = 0; l < down_.size(); ++l) {
      if (l > 0) skips.push_back(x);
      x = recomputed({x}, pass, [&block = *down_[l], l](const Maps& inputs, const Pass& pass) {
        return block.forward(l == 0 ? inputs[0] : at::max_pool2d(inputs[0], {2, 2}), pass);
      });
    }
    for (const auto& block : up_) {
      x = block->forward_joined(x, skips.back(), pass);
      skips.pop_back();
    }
    return {x};
  }

  Outputs head(const Maps& features, const Pass& pass) override {
    return {last_->forward(features.front(), {}, pass)};
  }

 private:
  std::shared_ptr<Block> add_block(LayerMaker& layers, const std::string& part, int64_t level, int64_t in,
                                   int64_t out) {
    const std::string name = part + std::to_string(level);
    return register_module(name, std::make_shared<Block>(layers, name, in, out));
  }

  std::vector<std::shared_ptr<Block>> down_, up_;
  std::shared_ptr<Layer> last_;
};

const Registered<Model> entry{
    {.name = "unet", .summary = "encoder and decoder with skips", .source = "Ronneberger et al. 2015"},
    make<Model, ModelOf<UNetNetwork, Options>>};

}  // namespace bnlab::unet
