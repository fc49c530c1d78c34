// fcn: which of its layers are the head.
#include <gtest/gtest.h>

#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

TEST(Fcn, ItsLastLayersAreTheHead) {
  const Outline network({{"name", "fcn"}, {"backbone", "resnet"}, {"auxiliary_weight", 1}});
  EXPECT_EQ(network.part_of("classifier.4.weight"), Part::head);
  EXPECT_EQ(network.part_of("aux_classifier.4.bias"), Part::head);
  EXPECT_EQ(network.part_of("classifier.1.running_mean"), Part::features);
  EXPECT_EQ(network.part_of("backbone.layer4.1.conv1.weight"), Part::backbone);
}

}  // namespace
}  // namespace bnlab
