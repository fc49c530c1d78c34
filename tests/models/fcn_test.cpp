// fcn: torchvision's FCN, counted.
#include <gtest/gtest.h>

#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

TEST(Fcn, HasAsManyParametersAsTorchvisions) {
  const auto count = [](int64_t depth, double auxiliary_weight) {
    const Json model = {{"name", "fcn"},
                        {"backbone", {{"name", "resnet"}, {"depth", depth}}},
                        {"auxiliary_weight", auxiliary_weight}};
    return Outline(model, 21).parameters();
  };
  EXPECT_EQ(count(50, 0), 32957013);
  EXPECT_EQ(count(50, 0.5), 35322218);
  EXPECT_EQ(count(101, 0.5), 54314346);
}

TEST(Fcn, ItsLastLayersAreTheHead) {
  const Outline network({{"name", "fcn"}, {"backbone", "resnet"}, {"auxiliary_weight", 1}});
  EXPECT_EQ(network.part_of("classifier.4.weight"), Part::head);
  EXPECT_EQ(network.part_of("aux_classifier.4.bias"), Part::head);
  EXPECT_EQ(network.part_of("classifier.1.running_mean"), Part::features);
  EXPECT_EQ(network.part_of("backbone.layer4.1.conv1.weight"), Part::backbone);
}

}  // namespace
}  // namespace bnlab
