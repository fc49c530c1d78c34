// The interface of a backbone: what a model stands on, a network for classification without its last layers.
// One file per backbone in backbones/, registered there. Its parameters have the names that torchvision gives
// them.
#pragma once

#include <memory>
#include <string>

#include "harness/models/model_facts.hpp"
#include "harness/network.hpp"

namespace bnlab {

class Trunk : public torch::nn::Module {
 public:
  // Five maps, at 1/2, 1/4, 1/8, 1/16 and 1/32 of the images' height and width (rounded up or down as each
  // backbone says), but that no map lies below 1/output_stride. A backbone for small images may keep finer
  // ones; it then names an output stride below 8, which models that answer for pixels do not take.
  virtual Network::Maps forward(at::Tensor images, const Pass& pass) = 0;
};

class Backbone {
 public:
  using Facts = BackboneFacts;
  static constexpr const char* kFamily = Facts::kFamily;
  struct Context {
    int64_t output_stride = 32;
  };

  virtual ~Backbone() = default;

  // `name`: the trunk's path in the network, with which the names of its sites begin; "" for none.
  virtual std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const = 0;
};

// A backbone that has no more to it than its trunk: T is made from (LayerMaker&, const std::string& name,
// const O& options, int64_t output_stride).
template <class T, class O>
class BackboneOf : public Backbone {
 public:
  using Options = O;

  BackboneOf(const Options& options, const Context& context)
      : options_(options), output_stride_(context.output_stride) {}

  std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const override {
    return std::make_shared<T>(layers, name, options_, output_stride_);
  }

 private:
  Options options_;
  int64_t output_stride_;
};

// The options of a model that stands on any backbone, after its own.
struct OnBackbone {
  Json backbone = "resnet";
  int64_t output_stride = 32;

  void describe(OptionVisitor& option);
  void check(const RunOutline& run, Problems& problems) const;

  // Channels of the five maps, and of the backbone's norm sites.
  Channels feature_channels() const;
  Channels norm_channels() const;
  std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const;
};

// From images to one vector each: any backbone, without dilation, and the mean of its last map over all
// positions. Models that answer for images or clips stand on it.
struct ImageEncoder {
  Json backbone = "resnet";

  void describe(OptionVisitor& option);

  Channels norm_channels() const;
  int64_t features() const;  // length of the vector
  // `name`: as Backbone::build has it.
  std::shared_ptr<Trunk> build(LayerMaker& layers, const std::string& name) const;
};

// images: [rows, 3, H, W]; result: [rows, features].
at::Tensor encoded(Trunk& trunk, at::Tensor images, const Pass& pass);

}  // namespace bnlab
