// deeplab_v3_plus: DeepLab v3 with a decoder (Chen et al. 2018), with the layers and names of
// VainF/DeepLabV3Plus-Pytorch.
//   classifier.project: 1x1 convolution of the map at 1/4 - norm - ReLU; classifier.aspp: the pyramid of the
//   last map (aspp.hpp), resized to the map at 1/4; classifier.classifier: 3x3 convolution of both - norm -
//   ReLU - 1x1 to the classes
// Every bilinear resize is one without align_corners.
#include <torch/types.h>

#include "harness/models/aspp.hpp"
#include "harness/models/model.hpp"
#include "harness/models/pixel_network.hpp"

namespace bnlab::deeplab_v3_plus {

struct Options : OnBackbone {
  int64_t head_width = 256;
  int64_t low_width = 48;
  double dropout = 0.1;

  Options() { output_stride = 16; }

  void describe(OptionVisitor& option) {
    OnBackbone::describe(option);
    option("head_width", head_width, "channels of each branch of the pyramid and behind it")
        .at_least(1)
        .at_most(4096);
    option("low_width", low_width, "channels that the map at 1/4 is brought to").at_least(1).at_most(4096);
    option("dropout", dropout, "share of the pyramid's values that become 0").at_least(0).below(1);
  }

  Channels norm_channels() const {
    Channels channels = OnBackbone::norm_channels();
    channels.insert(channels.end(), {head_width, low_width});
    return channels;
  }
};

class Classifier : public torch::nn::Module {
 public:
  Classifier(LayerMaker& layers, const std::string& name, const Options& options, int64_t classes) {
    const Channels maps = options.feature_channels();
    const ConvSite low{.in = maps[1], .out = options.low_width, .kernel = 1, .padding = 0};
    project_ = register_module("project", std::make_shared<ConvNorm>(layers, name + ".project", low));
    const Aspp::Shape pyramid{.in = maps[4],
                              .width = options.head_width,
                              .output_stride = options.output_stride,
                              .dropout = options.dropout};
    pyramid_ = register_module("aspp", std::make_shared<Aspp>(layers, name + ".aspp", pyramid));
    const PixelHead::Shape shape{.in = options.low_width + options.head_width,
                                 .width = options.head_width,
                                 .classes = classes,
                                 .names = {"0", "1", "3"}};
    head_ = register_module("classifier", std::make_shared<PixelHead>(layers, name + ".classifier", shape));
  }

  at::Tensor decoded(const Network::Maps& maps, const Pass& pass) {
    const at::Tensor low = project_->forward(maps[1], {}, pass);
    const at::Tensor high = pyramid_->forward(maps[4], pass);
    return at::cat({low, resized(high, low, Resizing::bilinear)}, 1);
  }

  std::shared_ptr<PixelHead> head() const { return head_; }

 private:
  std::shared_ptr<ConvNorm> project_;
  std::shared_ptr<Aspp> pyramid_;
  std::shared_ptr<PixelHead> head_;
};

class DeepLabPlusNetwork : public PixelNetwork {
 public:
  DeepLabPlusNetwork(LayerMaker& layers, const Options& options, int64_t classes)
      : PixelNetwork(layers, options),
        classifier_(register_module("classifier",
                                    std::make_shared<Classifier>(layers, "classifier", options, classes))) {
    head_ = classifier_->head();
  }

 private:
  at::Tensor gathered(const Maps& maps, const Pass& pass) override {
    return classifier_->decoded(maps, pass);
  }

  std::shared_ptr<Classifier> classifier_;
};

const Registered<Model> entry{
    {.name = "deeplab_v3_plus",
     .summary = "deeplab_v3 with a decoder that brings in the map at 1/4",
     .source = "Chen et al. 2018; layers and names as in VainF/DeepLabV3Plus-Pytorch"},
    make<Model, ModelOf<DeepLabPlusNetwork, Options>>};

}  // namespace bnlab::deeplab_v3_plus
