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
  Labelled answers_for = Labelled::pixels;  // where the options do not say it

  // Channels of each kind of norm site.
  FactOfOptions<Channels> norm_channels = [](const Json&) { return Channels(); };
  // That a network which is there already answers for; 0 where the task decides.
  FactOfOptions<int64_t> classes = [](const Json&) { return int64_t{0}; };
  // The folder that it is read from; "": none.
  FactOfOptions<std::string> folder = [](const Json&) { return std::string(); };
  // Whether it starts from weights that it brings along, such as trained ones.
  FactOfOptions<bool> brings_weights = [](const Json&) { return false; };
  FactOfOptions<Labelled> answers_by_options = {};  // none: answers_for
  Labelled answers(const Json& model) const {
    return answers_by_options ? answers_by_options(model) : answers_for;
  }
  // What heights and widths of images must be multiples of.
  FactOfOptions<int64_t> image_multiple = [](const Json&) { return int64_t{1}; };

  template <Described Options>
  void ask() {
    if constexpr (requires { &Options::norm_channels; })
      norm_channels = asked<Options>(&Options::norm_channels);
    if constexpr (requires { &Options::image_multiple; })
      image_multiple = asked<Options>(&Options::image_multiple);
    if constexpr (requires { &Options::classes; }) classes = asked<Options>(&Options::classes);
    if constexpr (requires { &Options::folder; }) folder = asked<Options>(&Options::folder);
    if constexpr (requires { &Options::brings_weights; })
      brings_weights = asked<Options>(&Options::brings_weights);
    if constexpr (requires { &Options::answers_for; })
      answers_by_options = asked<Options>(&Options::answers_for);
  }
};

struct BackboneFacts {
  static constexpr const char* kFamily = "backbone";

  std::string name;
  std::string summary = {};
  std::string source = {};

  FactOfOptions<Channels> norm_channels = {};  // one per kind of norm site
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
