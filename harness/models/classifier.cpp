// classifier: any backbone, the mean of its last map, and a linear layer, `fc`. With the backbone resnet it
// is torchvision's ResNet, name by name.
// cifar_resnet: the same on the backbone small_resnet, the network of He et al. 2016, section 4.2.
#include <torch/types.h>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"

namespace bnlab::classifier {

class ClassifierNetwork : public Network {
 public:
  ClassifierNetwork(LayerMaker& layers, const ImageEncoder& encoder, int64_t classes,
                    const Model::Context& context)
      : trunk_(encoder.build(layers, "")) {
    for (const auto& child : trunk_->named_children())  // which makes their names begin with no prefix
      register_module(child.key(), child.value());
    fc_ = register_module("fc", std::make_shared<Linear>(context, "fc", encoder.features(), classes));
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    return {encoded(*trunk_, std::move(images), pass)};
  }
  Outputs head(const Maps& features, const Pass&) override { return {fc_->forward(features[0])}; }

  Part part_of(const std::string& name) const override {
    return name.starts_with("fc.") ? Part::head : Part::backbone;
  }

 private:
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<Linear> fc_;
};

class Classifier : public Model {
 public:
  using Options = ImageEncoder;

  Classifier(const Options& options, const Context& context) : encoder_(options), context_(context) {}

  std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const override {
    return std::make_shared<ClassifierNetwork>(layers, encoder_, classes, context_);
  }

 private:
  ImageEncoder encoder_;
  Context context_;
};

class CifarResNet : public Classifier {
 public:
  struct Options {
    int64_t depth = 20;
    int64_t width = 16;

    void describe(OptionVisitor& option) {
      option("depth", depth, "layers: 6n + 2 for n blocks in each stage").at_least(8).at_most(1202);
      option("width", width, "channels of the first stage; 16 is the published network")
          .at_least(1)
          .at_most(1024);
    }
    void check(const RunOutline& run, Problems& problems) const {
      find_registered("backbone", "small_resnet")->check(encoder().backbone, run, problems);
    }
    Channels norm_channels() const { return encoder().norm_channels(); }
    ImageEncoder encoder() const { return {{{"name", "small_resnet"}, {"depth", depth}, {"width", width}}}; }
  };

  CifarResNet(const Options& options, const Context& context) : Classifier(options.encoder(), context) {}
};

const Registered<Model> entry{{.name = "classifier",
                               .summary = "any backbone, mean over positions, a linear layer",
                               .source = "as torchvision ends its ResNet",
                               .answers_for = Labelled::images},
                              make<Model, Classifier>};

const Registered<Model> cifar_resnet{
    {.name = "cifar_resnet",
     .summary = "the residual network for CIFAR, of depth 6n + 2",
     .source = "He et al. 2016, section 4.2; names as in torchvision's ResNet",
     .answers_for = Labelled::images},
    make<Model, CifarResNet>};

}  // namespace bnlab::classifier
