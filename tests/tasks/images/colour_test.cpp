#include "harness/tasks/images/colour.hpp"

#include <gtest/gtest.h>

namespace bnlab::colour_test {
namespace {

void expect_colour(const Colour& colour, const Colour& expected) {
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(colour[c], expected[c], 1e-3) << "channel " << c;
  }
}

TEST(ColourChange, NothingIsChangedByDefault) {
  EXPECT_TRUE(ColourChange().none());
  expect_colour(changed({12, 200, 77}, {}), {12, 200, 77});
}

TEST(ColourChange, BrightnessAndContrastAreCutOff) {
  expect_colour(changed({10, 100, 250}, {.brightness = -20}), {0, 80, 230});
  expect_colour(changed({10, 100, 250}, {.contrast = 1.5f}), {15, 150, 255});
}

TEST(ColourChange, SaturationScalesTheDistanceToTheLargestChannel) {
  expect_colour(changed({200, 100, 50}, {.saturation = 0.5f}), {200, 150, 125});
  expect_colour(changed({200, 100, 50}, {.saturation = 0}), {200, 200, 200});
  // By at most 200 / 150: then the smallest channel is 0, and the other 200 - 100 * 4 / 3.
  expect_colour(changed({200, 100, 50}, {.saturation = 9}), {200, 200 - 400 / 3.0f, 0});
  expect_colour(changed({70, 70, 70}, {.saturation = 2}), {70, 70, 70});
}

TEST(ColourChange, HueTurnsTheColourCircle) {
  expect_colour(changed({255, 0, 0}, {.hue = 120}), {0, 255, 0});
  expect_colour(changed({255, 0, 0}, {.hue = -120}), {0, 0, 255});
  expect_colour(changed({200, 100, 50}, {.hue = 40}), {200, 200, 50});  // from 20 degrees to 60
  expect_colour(changed({200, 100, 50}, {.hue = -20}), {200, 50, 50});
  expect_colour(changed({50, 100, 200}, {.hue = 360}), {50, 100, 200});
  expect_colour(changed({70, 70, 70}, {.hue = 90}), {70, 70, 70});
}

TEST(ColourChange, ContrastMayComeFirst) {
  ColourChange change{.contrast = 1.2f, .saturation = 0.5f};
  expect_colour(changed({250, 100, 100}, change), {255, 210, 210});  // 250 175 175, times 1.2
  change.contrast_first = true;
  expect_colour(changed({250, 100, 100}, change), {255, 187.5f, 187.5f});  // 255 120 120, halfway to 255
}

}  // namespace
}  // namespace bnlab::colour_test
