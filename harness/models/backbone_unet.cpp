// backbone_unet: a U-Net (Ronneberger et al. 2015) whose encoder is any backbone, with the decoder and names
// of segmentation_models_pytorch. From the last map on, five blocks: the map grows to the size of the next
// larger one (the last time to the image's) by its nearest neighbours, that map is put behind it, but the
// image is not, and both go twice through [3x3 convolution - norm - ReLU]. The head is a 3x3 convolution at
// the size of the image.
#include <torch/types.h>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"

namespace bnlab::backbone_unet {

struct Options : OnBackbone {
  int64_t decoder_width = 16;
  bool center = false;

  void describe(OptionVisitor& option) {
    OnBackbone::describe(option);
    option("decoder_width", decoder_width,
           "channels of the last block; those before have 2, 4, 8, 16 times as many")
        .at_least(1)
        .at_most(256);
    option("center", center, "two more convolutions of the backbone's last map, as the original has on VGG");
  }

  int64_t block_width(int64_t block) const { return decoder_width << (4 - block); }

  Channels norm_channels() const {
    Channels channels = OnBackbone::norm_channels();
    for (int64_t b = 0; b < 5; ++b) channels.push_back(block_width(b));
    if (center) channels.push_back(feature_channels()[4]);
    return channels;
  }
};

// Twice [3x3 convolution - norm - ReLU], under two names.
class Block : public torch::nn::Module {
 public:
  Block(LayerMaker& layers, const std::string& name, int64_t in, int64_t out,
        const std::array<std::string, 2>& names) {
    for (const std::string& n : names) {
      pairs_.push_back(register_module(
          n, std::make_shared<ConvNorm>(layers, path(name, n), ConvSite{.in = in, .out = out})));
      in = out;
    }
  }

  // Of a map and, where there is one, the map that is brought to its size and stands before it. Each pair is
  // a block (recomputed), the first together with what joins the maps.
  at::Tensor forward(const at::Tensor& map, const at::Tensor& below, const Pass& pass) {
    const at::Tensor x = recomputed({map, below}, pass, [this](const auto& inputs, const Pass& pass) {
      at::Tensor joined = inputs[0];
      if (inputs[1].defined()) joined = at::cat({resized(inputs[1], joined, Resizing::nearest), joined}, 1);
      return pairs_[0]->forward(joined, {}, pass);
    });
    return pairs_[1]->forward(x, {}, pass);
  }

 private:
  std::vector<std::shared_ptr<ConvNorm>> pairs_;
};

class Decoder : public torch::nn::Module {
 public:
  Decoder(LayerMaker& layers, const std::string& name, const Options& options) {
    const Channels maps = options.feature_channels();
    if (options.center) {
      center_ = register_module("center", std::make_shared<Block>(layers, name + ".center", maps[4], maps[4],
                                                                  std::array<std::string, 2>{"0", "1"}));
    }
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    int64_t in = maps[4];
    for (int64_t b = 0; b < 5; ++b) {
      const std::string n = std::to_string(b);
      const int64_t skip = b < 4 ? maps[static_cast<size_t>(3 - b)] : 0;
      blocks_.push_back(list->register_module(
          n, std::make_shared<Block>(layers, name + ".blocks." + n, in + skip, options.block_width(b),
                                     std::array<std::string, 2>{"conv1", "conv2"})));
      in = options.block_width(b);
    }
  }

  // `images`: only for their size.
  at::Tensor forward(const Network::Maps& maps, const at::Tensor& images, const Pass& pass) {
    at::Tensor x = center_ ? center_->forward(maps[4], {}, pass) : maps[4];
    for (size_t b = 0; b < 4; ++b) x = blocks_[b]->forward(maps[3 - b], x, pass);
    return blocks_[4]->forward(resized(x, images, Resizing::nearest), {}, pass);
  }

 private:
  std::shared_ptr<Block> center_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

class BackboneUNetwork : public Network {
 public:
  BackboneUNetwork(LayerMaker& layers, const Options& options, int64_t classes)
      : encoder_(register_module("encoder", options.build(layers, "encoder"))),
        decoder_(register_module("decoder", std::make_shared<Decoder>(layers, "decoder", options))) {
    const auto list = register_module("segmentation_head", std::make_shared<torch::nn::Module>());
    last_ = list->register_module("0", layers.conv({.name = "segmentation_head.0",
                                                    .in = options.decoder_width,
                                                    .out = classes,
                                                    .norm_follows = false}));
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    return {decoder_->forward(encoder_->forward(images, pass), images, pass)};
  }

  Outputs head(const Maps& features, const Pass& pass) override {
    return {last_->forward(features.front(), {}, pass)};
  }

  Part part_of(const std::string& name) const override {
    const std::string beginning = name.substr(0, name.find('.'));
    return beginning == "segmentation_head" ? Part::head
           : beginning == "encoder"         ? Part::backbone
                                            : Part::features;
  }

 private:
  std::shared_ptr<Trunk> encoder_;
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<Layer> last_;
};

const Registered<Model> entry{
    {.name = "backbone_unet",
     .summary = "encoder and decoder with skips, on any backbone",
     .source = "Ronneberger et al. 2015; layers and names as in segmentation_models_pytorch"},
    make<Model, ModelOf<BackboneUNetwork, Options>>};

}  // namespace bnlab::backbone_unet
