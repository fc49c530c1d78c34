// fcn: a fully convolutional network (Long, Shelhamer, Darrell 2015) on a dilated backbone, as torchvision builds it.
//   classifier: 3x3 convolution of the last map to a quarter of its channels - norm - ReLU - dropout - 1x1 to the classes
//   auxiliary head, if wanted: the same on the map before the last
// Logits grow to the size of the image bilinearly (align_corners false).
#include <torch/types.h>

#include "harness/dropout.hpp"
#include "harness/models/backbone.hpp"
#include "harness/models/conv_norm.hpp"
#include "harness/models/model.hpp"

namespace bnlab::fcn {

struct Options : OnBackbone {
  double auxiliary_weight = 0;
  double dropout = 0.1;

  Options() { output_stride = 8; }

  void describe(OptionVisitor& option) {
    OnBackbone::describe(option);
    option("auxiliary_weight", auxiliary_weight,
           "of the loss of an auxiliary head on the map before the last; 0: no such head")
        .at_least(0);
    option("dropout", dropout, "share of the values that become 0 before the last layer")
        .at_least(0)
        .below(1);
  }

  Channels norm_channels() const {
    Channels channels = OnBackbone::norm_channels();
    const Channels maps = feature_channels();
    channels.push_back(maps[4] / 4);
    if (auxiliary_weight > 0) {
      channels.push_back(maps[3] / 4);
    }
    return channels;
  }
};

// torchvision's FCNHead: `features` is what stands among the features, `logits` what stands in the head.
class Head : public torch::nn::Module {
 public:
  Head(LayerMaker& layers, const std::string& name, int64_t in, int64_t classes, double dropout)
      : conv_(register_module("0", layers.conv({.name = name + ".0", .in = in, .out = in / 4}))),
        norm_(register_module("1", layers.norm({name + ".1", in / 4, Activation::relu}))),
        last_(register_module("4", layers.conv({.name = name + ".4",
                                                .in = in / 4,
                                                .out = classes,
                                                .kernel = 1,
                                                .padding = 0,
                                                .norm_follows = false}))),
        dropout_{name + ".3", dropout} {}

  at::Tensor features(const at::Tensor& x, const Pass& pass) {
    return norm_->forward(conv_->forward(x, {}, pass), {}, pass);
  }
  at::Tensor logits(const at::Tensor& features, const Pass& pass) {
    const at::Tensor small = last_->forward(dropout(features, dropout_, pass), {}, pass);
    return at::upsample_bilinear2d(small, pass.image_size, /*align_corners=*/false);
  }

 private:
  std::shared_ptr<Layer> conv_, norm_, last_;
  Dropout dropout_;
};

class FcnNetwork : public Network {
 public:
  FcnNetwork(LayerMaker& layers, const Options& options, int64_t classes)
      : trunk_(register_module("backbone", options.build(layers, "backbone"))),
        auxiliary_weight_(options.auxiliary_weight) {
    const Channels maps = options.feature_channels();
    classifier_ = register_module(
        "classifier", std::make_shared<Head>(layers, "classifier", maps[4], classes, options.dropout));
    if (auxiliary_weight_ > 0) {
      auxiliary_ = register_module("aux_classifier", std::make_shared<Head>(layers, "aux_classifier", maps[3],
                                                                            classes, options.dropout));
    }
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    const Maps maps = trunk_->forward(std::move(images), pass);
    Maps found = {classifier_->features(maps[4], pass)};
    if (auxiliary_ && pass.as_in_training()) {
      found.push_back(auxiliary_->features(maps[3], pass));
    }
    return found;
  }

  Outputs head(const Maps& features, const Pass& pass) override {
    Outputs outputs{classifier_->logits(features[0], pass)};
    if (features.size() > 1) {
      outputs.auxiliary = auxiliary_->logits(features[1], pass);
      outputs.auxiliary_weight = auxiliary_weight_;
    }
    return outputs;
  }

  Part part_of(const std::string& name) const override {
    return name.find("classifier.4.") != std::string::npos ? Part::head : Network::part_of(name);
  }

 private:
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<Head> classifier_, auxiliary_;
  double auxiliary_weight_;
};

class Fcn : public Model {
 public:
  using Options = fcn::Options;

  Fcn(const Options& options, const Context&) : options_(options) {}

  std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const override {
    return std::make_shared<FcnNetwork>(layers, options_, classes);
  }

 private:
  Options options_;
};

const Registered<Model> entry{{.name = "fcn",
                               .summary = "fully convolutional network on a dilated backbone",
                               .source = "Long, Shelhamer, Darrell 2015; layers and names as in torchvision"},
                              make<Model, Fcn>};

}  // namespace bnlab::fcn
