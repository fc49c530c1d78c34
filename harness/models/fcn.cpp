// fcn: a fully convolutional network (Long, Shelhamer, Darrell 2015) on a dilated backbone, as torchvision
// builds it.
//   classifier: 3x3 convolution of the last map to a quarter of its channels - norm - ReLU - dropout - 1x1 to
//   the classes
//   auxiliary head, if wanted: the same on the map before the last
// Logits grow to the size of the image bilinearly (align_corners false).
#include <torch/types.h>

#include "harness/models/model.hpp"
#include "harness/models/pixel_network.hpp"

namespace bnlab::fcn {

struct Options : WithAuxiliary {
  double dropout = 0.1;

  Options() { output_stride = 8; }

  void describe(OptionVisitor& option) {
    WithAuxiliary::describe(option);
    option("dropout", dropout, "share of the values that become 0 before the last layer")
        .at_least(0)
        .below(1);
  }

  Channels norm_channels() const {
    Channels channels = WithAuxiliary::norm_channels();
    channels.push_back(feature_channels()[4] / 4);
    return channels;
  }
};

class FcnNetwork : public PixelNetwork {
 public:
  FcnNetwork(LayerMaker& layers, const Options& options, int64_t classes) : PixelNetwork(layers, options) {
    const int64_t in = options.feature_channels()[4];
    const PixelHead::Shape shape{.in = in, .width = in / 4, .classes = classes, .dropout = options.dropout};
    head_ = register_module("classifier", std::make_shared<PixelHead>(layers, "classifier", shape));
    add_auxiliary(layers, options, "aux_classifier", shape);
  }
};

const Registered<Model> entry{{.name = "fcn",
                               .summary = "fully convolutional network on a dilated backbone",
                               .source = "Long, Shelhamer, Darrell 2015; layers and names as in torchvision"},
                              make<Model, ModelOf<FcnNetwork, Options>>};

}  // namespace bnlab::fcn
