// What FCN, PSPNet and the DeepLabs share: a backbone, a head that makes logits of its last map (or of what
// the model has gathered from its maps), and perhaps an auxiliary head on the map before the last, in
// training.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"

namespace bnlab {

// The options of such a model, before its own.
struct WithAuxiliary : OnBackbone {
  double auxiliary_weight = 0;

  void describe(OptionVisitor& option);
  Channels norm_channels() const;
};

// torchvision's FCNHead: 3x3 convolution - norm - ReLU - dropout - 1x1 convolution to the classes - bilinear
// resize to the image. What stands up to the ReLU belongs to the features, the rest to the head.
class PixelHead : public torch::nn::Module {
 public:
  struct Shape {
    int64_t in = 0, width = 0, classes = 0;
    double dropout = 0;
    bool drops_channels = false;
    bool align_corners = false;
    std::array<std::string, 3> names = {"0", "1", "4"};  // convolution, norm, last convolution
  };

  // `name`: the head's path in the network.
  PixelHead(LayerMaker& layers, const std::string& name, const Shape& shape);

  at::Tensor features(const at::Tensor& x, const Pass& pass);
  at::Tensor logits(const at::Tensor& features, const Pass& pass);

  const std::string& last() const { return last_name_; }  // the path of the last convolution

 private:
  std::string last_name_;
  Dropout dropout_;
  bool align_corners_;
  ConvNormPair first_;
  std::shared_ptr<Layer> last_;
};

class PixelNetwork : public Network {
 public:
  Maps features(at::Tensor images, const Pass& pass) override;
  Outputs head(const Maps& features, const Pass& pass) override;
  Part part_of(const std::string& name) const override;

 protected:
  PixelNetwork(LayerMaker& layers, const OnBackbone& options);

  // The auxiliary head, if the options want one; `shape` has its classes and what it does beside its
  // convolutions.
  void add_auxiliary(LayerMaker& layers, const WithAuxiliary& options, const std::string& name,
                     PixelHead::Shape shape);

  // What the head is given of the backbone's five maps.
  virtual at::Tensor gathered(const Maps& maps, const Pass& /*pass*/) { return maps[4]; }

  std::shared_ptr<PixelHead> head_;  // set and registered by the model

 private:
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<PixelHead> auxiliary_;
  double auxiliary_weight_ = 0;
};

}  // namespace bnlab
