// segnet_basic: the authors' names; what its pools and unpools do.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

TEST(SegNetBasic, NamesItsLayersAsTheAuthors) {
  const Outline net("segnet_basic");
  for (const char* name : {"conv1.weight", "conv1_bn.weight", "conv_decode4.weight", "conv_decode1_bn.bias",
                           "conv_classifier.bias"}) {
    EXPECT_TRUE(net.has(name)) << name;
  }
  EXPECT_EQ(net.part_of("conv_classifier.weight"), Part::head);
  EXPECT_EQ(net.part_of("conv_decode1.weight"), Part::features);
  for (const NormSite& site : net.norms()) {
    const bool decodes = site.name.rfind("conv_decode", 0) == 0;
    EXPECT_EQ(site.activation, decodes ? Activation::none : Activation::relu) << site.name;
  }
}

// With layers that do nothing, what stays of an image are the maxima of windows of 16x16, where they were.
TEST(SegNetBasic, PutsMaximaBackToTheirPlaces) {
  const Json options = resolved_component("model", {{"name", "segnet_basic"}, {"width", 3}});
  at::manual_seed(1);
  const at::Tensor x = at::rand({2, 3, 19, 33}, at::kDouble) + 1;  // 19 and 33 are halved with a rest
  at::Tensor expected = at::zeros_like(x);
  for (int64_t top = 0; top < 19; top += 16) {
    for (int64_t left = 0; left < 33; left += 16) {
      const at::Tensor window = x.slice(2, top, top + 16).slice(3, left, left + 16);
      expected.slice(2, top, top + 16)
          .slice(3, left, left + 16)
          .copy_(at::where(window == window.amax({2, 3}, true), window, 0));
    }
  }
  class Nothing : public Layer, public LayerMaker {
   public:
    std::shared_ptr<Layer> norm(const NormSite&) override { return std::make_shared<Nothing>(); }
    std::shared_ptr<Layer> conv(const ConvSite&) override { return std::make_shared<Nothing>(); }
    at::Tensor forward(at::Tensor input, at::Tensor, const Pass&) override { return input; }
  } layers;
  const auto network = Registered<Model>::create(options, {})->build(layers, 3);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const at::Tensor images = x.to(type).clone(layout).requires_grad_();
      at::autocast::set_autocast_enabled(at::kCPU, type == at::kBFloat16);
      const at::Tensor y = network->features(images, {}).front();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_TRUE(y.is_contiguous(layout));
      if (type != at::kBFloat16) {  // in which values of a window may be equal
        EXPECT_TRUE(at::equal(y, expected.to(type)));
        y.sum().backward();
        EXPECT_TRUE(at::equal(images.grad(), expected.gt(0).to(type)));
      }
    }
  }
}

TEST(SegNetBasic, TakesAnySize) {
  OneRankNetwork built({{"name", "segnet_basic"}, {"width", 2}}, 4);
  EXPECT_EQ(built.forward(at::ones({2, 3, 5, 23}, at::kDouble)).logits.sizes(),
            (at::IntArrayRef{2, 4, 5, 23}));
}

}  // namespace
}  // namespace bnlab
