// What is known of a model or a backbone before it is built: what its registration says, and what follows
// from its options. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/labelled.hpp"

namespace bnlab {

struct ModelFacts {
  static constexpr const char* kFamily = "model";

  std::string name;
  std::string summary = {};
  std::string source = {};
  Labelled answers_for = Labelled::pixels;

  // Channels of each kind of norm site.
  FactOfOptions<Channels> norm_channels = [](const Json&) { return Channels(); };
  // What heights and widths of images must be multiples of.
  FactOfOptions<int64_t> image_multiple = [](const Json&) { return int64_t{1}; };

  template <Described Options>
  void ask() {
    if constexpr (requires { &Options::norm_channels; })
      norm_channels = asked<Options>(&Options::norm_channels);
    if constexpr (requires { &Options::image_multiple; })
      image_multiple = asked<Options>(&Options::image_multiple);
  }
};

struct BackboneFacts {
  static constexpr const char* kFamily = "backbone";

  std::string name;
  std::string summary = {};
  std::string source = {};

  FactOfOptions<Channels> norm_channels = {};  // of each kind of norm site
  // Channels of the maps at 1/2, 1/4, 1/8, 1/16 and 1/32 of the image, and the strides that the last of them
  // may keep by dilation.
  FactOfOptions<Channels> feature_channels = {};
  FactOfOptions<std::vector<int64_t>> output_strides = {};

  template <Described Options>
  void ask() {
    norm_channels = asked<Options>(&Options::norm_channels);
    feature_channels = asked<Options>(&Options::feature_channels);
    output_strides = asked<Options>(&Options::output_strides);
  }
};

}  // namespace bnlab
