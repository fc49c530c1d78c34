#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <set>

#include "harness/components/registry.hpp"
#include "harness/models/model.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

class Plain : public Layer {
 public:
  Plain(int64_t out, int64_t stride) : out_(out), stride_(stride) {}
  at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override {  // keeps the size, sets the channels
    return at::zeros({x.size(0), out_, x.size(2) / stride_, x.size(3) / stride_});
  }

 private:
  int64_t out_, stride_;
};

// Writes down what the model asks for.
class Witness : public LayerMaker {
 public:
  std::shared_ptr<Layer> norm(const NormSite& site) override {
    norms.push_back(site);
    return std::make_shared<Plain>(site.channels, 1);
  }
  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    convs.push_back(site);
    return std::make_shared<Plain>(site.out, site.stride);
  }
  std::vector<NormSite> norms;
  std::vector<ConvSite> convs;
};

std::unique_ptr<Model> unet(int64_t base, int64_t levels, const ImageSizes& sizes = {}) {
  return Registered<Model>::create({{"name", "unet"}, {"base", base}, {"levels", levels}}, {sizes});
}

TEST(UNet, AsksForTwoBlocksPerLevelOnEachSide) {
  Witness witness;
  unet(16, 3)->build(witness, 5);
  std::vector<int64_t> in, out, channels;
  for (const ConvSite& site : witness.convs) {
    in.push_back(site.in);
    out.push_back(site.out);
  }
  for (const NormSite& site : witness.norms) {
    channels.push_back(site.channels);
    EXPECT_EQ(site.activation, Activation::relu);
  }
  // encoder 16 and 32, bottom 64; decoder: 64 upsampled + 32 skipped, 32 + 16; the head
  EXPECT_EQ(in, (std::vector<int64_t>{3, 16, 16, 32, 32, 64, 96, 32, 48, 16, 16}));
  EXPECT_EQ(out, (std::vector<int64_t>{16, 16, 32, 32, 64, 64, 32, 32, 16, 16, 5}));
  EXPECT_EQ(channels, (std::vector<int64_t>{16, 16, 32, 32, 64, 64, 32, 32, 16, 16}));
  EXPECT_EQ(witness.convs.back().kernel, 1);
  EXPECT_FALSE(witness.convs.back().norm_follows);
}

TEST(UNet, SitesHaveNamesOfTheirOwn) {
  Witness witness;
  unet(4, 4)->build(witness, 2);
  std::set<std::string> names;
  for (const NormSite& site : witness.norms) names.insert(site.name);
  for (const ConvSite& site : witness.convs) names.insert(site.name);
  EXPECT_EQ(names.size(), witness.norms.size() + witness.convs.size());
}

TEST(UNet, OutputHasTheSizeOfTheInput) {
  Witness witness;
  const auto network = unet(4, 3)->build(witness, 7);
  const at::Tensor y = network->head(network->features(at::zeros({2, 3, 12, 20}), {}), {}).logits;
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 7, 12, 20}));
}

TEST(UNet, RefusesSizesThatCannotBeHalvedOftenEnough) {
  EXPECT_NO_THROW(unet(4, 3, {{12, 20}}));
  try {
    unet(4, 3, {{12, 20}, {12, 18}});
    FAIL() << "a width of 18 was accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "unet: levels: unet with 3 levels needs images whose height and width are multiples of 4, got 12x18");
  }
}

TEST(UNet, TellsBeforeARunThatTheImagesOfTheTaskDoNotFit) {
  const Json three_levels{{"name", "unet"}, {"base", 4}, {"levels", 3}};
  Problems problems;
  check_component("model", three_levels, "model", {.image_sizes = {{12, 20}}}, problems);
  EXPECT_TRUE(problems.empty());
  check_component("model", three_levels, "model", {.image_sizes = {{12, 18}}}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.levels");
  EXPECT_NE(problems.found()[0].second.find("multiples of 4, got 12x18"), std::string::npos);
}

// Under autocast on a GPU some operations run in float32; whether one would is seen here when it is called.
thread_local std::map<std::string, bool> reaches_autocast;

std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& call) {
  reaches_autocast[call.name()] = !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCUDA);
  return nullptr;
}

TEST(UNet, UpsamplesInThePrecisionOfItsInput) {
  Witness witness;
  const auto network = unet(8, 2)->build(witness, 5);
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(look).scopes({at::RecordScope::FUNCTION}));
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  network->features(at::zeros({1, 3, 8, 8}), {});
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::removeCallback(handle);
  EXPECT_FALSE(reaches_autocast.at("aten::upsample_nearest2d"));
  EXPECT_TRUE(reaches_autocast.at("aten::cat"));
}

}  // namespace
}  // namespace bnlab
