// deeplab_v3: atrous spatial pyramid pooling (aspp.hpp) on a dilated backbone (Chen et al. 2017), as
// torchvision builds it.
//   classifier: the pyramid of the last map - 3x3 convolution - norm - ReLU - 1x1 to the classes
//   auxiliary head, if wanted: fcn's, on the map before the last
// Logits grow to the size of the image bilinearly (align_corners false). torchvision has output stride 8; the
// pyramid's dilations shrink at 16 as in the paper.
#include <torch/types.h>

#include "harness/models/aspp.hpp"
#include "harness/models/model.hpp"
#include "harness/models/pixel_network.hpp"

namespace bnlab::deeplab_v3 {

struct Options : WithAuxiliary {
  int64_t head_width = 256;
  double dropout = 0.5;
  double auxiliary_dropout = 0.1;

  Options() { output_stride = 8; }

  void describe(OptionVisitor& option) {
    WithAuxiliary::describe(option);
    option("head_width", head_width, "channels of each branch of the pyramid and behind it")
        .at_least(1)
        .at_most(4096);
    option("dropout", dropout, "share of the pyramid's values that become 0").at_least(0).below(1);
    option("auxiliary_dropout", auxiliary_dropout,
           "share of the values that become 0 before the auxiliary head's last layer")
        .at_least(0)
        .below(1);
  }

  Channels norm_channels() const {
    Channels channels = WithAuxiliary::norm_channels();
    channels.push_back(head_width);
    return channels;
  }
};

// The head behind its own pyramid, so that the layers of both are numbered as one sequence.
class Classifier : public PixelHead {
 public:
  Classifier(LayerMaker& layers, const std::string& name, const Aspp::Shape& pyramid, const Shape& shape)
      : PixelHead(layers, name, shape),
        pyramid_(register_module("0", std::make_shared<Aspp>(layers, name + ".0", pyramid))) {}

  Aspp& pyramid() { return *pyramid_; }

 private:
  std::shared_ptr<Aspp> pyramid_;
};

class DeepLabNetwork : public PixelNetwork {
 public:
  DeepLabNetwork(LayerMaker& layers, const Options& options, int64_t classes)
      : PixelNetwork(layers, options) {
    const Aspp::Shape pyramid{.in = options.feature_channels()[4],
                              .width = options.head_width,
                              .output_stride = options.output_stride,
                              .dropout = options.dropout};
    const PixelHead::Shape shape{
        .in = options.head_width, .width = options.head_width, .classes = classes, .names = {"1", "2", "4"}};
    classifier_ =
        register_module("classifier", std::make_shared<Classifier>(layers, "classifier", pyramid, shape));
    head_ = classifier_;
    add_auxiliary(layers, options, "aux_classifier",
                  {.classes = classes, .dropout = options.auxiliary_dropout});
  }

 private:
  at::Tensor gathered(const Maps& maps, const Pass& pass) override {
    return classifier_->pyramid().forward(maps[4], pass);
  }

  std::shared_ptr<Classifier> classifier_;
};

const Registered<Model> entry{{.name = "deeplab_v3",
                               .summary = "pyramid of dilated convolutions on a dilated backbone",
                               .source = "Chen et al. 2017; layers and names as in torchvision"},
                              make<Model, ModelOf<DeepLabNetwork, Options>>};

}  // namespace bnlab::deeplab_v3
