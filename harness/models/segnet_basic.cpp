// segnet_basic: SegNet-Basic (Badrinarayanan et al. 2015), with the layers and names of the authors' Caffe
// model.
//   encoder: four times [7x7 convolution - norm - ReLU - 2x2 max pool], sizes rounded up; every maximum's
//   place is kept
//   decoder: four times [values back to the places of their maxima, else zeros - 7x7 convolution - norm]
//   head: 1x1 convolution to the classes
// No convolution before a norm has a bias. The authors' response normalisation of the images belongs to the
// task.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <array>

#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"

namespace bnlab::segnet_basic {

struct Options {
  int64_t width = 64;

  void describe(OptionVisitor& option) {
    option("width", width, "channels of every level; 64 is the published network").at_least(1).at_most(1024);
  }

  Channels norm_channels() const { return {width}; }
};

// The maxima at their places in maps of the given size. No two windows overlap, so every value has a place of
// its own. It only copies values, so it needs no float32, in which autocast would do it.
at::Tensor unpooled(const at::Tensor& maxima, const at::Tensor& places, const std::array<int64_t, 2>& size) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::max_unpool2d(maxima, places, size);
}

class SegNetwork : public Network {
 public:
  SegNetwork(LayerMaker& layers, const Options& options, int64_t classes) {
    const int64_t width = options.width;
    for (size_t level = 0; level < 4; ++level) {
      const std::string n = std::to_string(level + 1);
      encoder_[level] = add(layers, "conv" + n, level == 0 ? 3 : width, width, Activation::relu);
      decoder_[level] = add(layers, "conv_decode" + n, width, width, Activation::none);
    }
    last_ = register_module("conv_classifier", layers.conv({.name = "conv_classifier",
                                                            .in = width,
                                                            .out = classes,
                                                            .kernel = 1,
                                                            .padding = 0,
                                                            .norm_follows = false}));
  }

  Maps features(at::Tensor x, const Pass& pass) override {
    std::array<at::Tensor, 4> places;
    std::array<std::array<int64_t, 2>, 4> sizes;
    for (size_t level = 0; level < 4; ++level) {
      x = recomputed({x}, pass, [this, level](const Maps& inputs, const Pass& pass) {
        return encoder_[level].forward(inputs[0], {}, pass);
      });
      sizes[level] = {x.size(2), x.size(3)};
      std::tie(x, places[level]) =
          at::max_pool2d_with_indices(x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, /*ceil_mode=*/true);
    }
    for (size_t level = 4; level-- > 0;) {
      x = recomputed({x, places[level]}, pass,
                     [this, level, size = sizes[level]](const Maps& inputs, const Pass& pass) {
                       return decoder_[level].forward(unpooled(inputs[0], inputs[1], size), {}, pass);
                     });
    }
    return {x};
  }

  Outputs head(const Maps& features, const Pass& pass) override {
    return {last_->forward(features.front(), {}, pass)};
  }

  Part part_of(const std::string& name) const override {
    return name.rfind("conv_classifier.", 0) == 0 ? Part::head : Part::features;
  }

 private:
  ConvNormPair add(LayerMaker& layers, const std::string& name, int64_t in, int64_t out,
                   Activation activation) {
    return add_pair(*this, layers, "", {name, name + "_bn"},
                    {.in = in, .out = out, .kernel = 7, .padding = 3}, activation);
  }

  std::array<ConvNormPair, 4> encoder_, decoder_;
  std::shared_ptr<Layer> last_;
};

const Registered<Model> entry{
    {.name = "segnet_basic",
     .summary = "encoder and decoder that unpools to the places of the maxima",
     .source = "Badrinarayanan et al. 2015; layers and names as in the authors' model"},
    make<Model, ModelOf<SegNetwork, Options>>};

}  // namespace bnlab::segnet_basic
