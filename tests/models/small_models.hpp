// A small instance of every registered model, with the smallest images on which all of it works and no norm
// but those of image means sees so few values that rounding grows. models_test.cpp holds each of them to what
// every model promises.
#pragma once

#include <array>
#include <map>
#include <string>

#include "harness/support/json.hpp"
#include "tests/models/exported_folder.hpp"

namespace bnlab {

struct SmallModel {
  Json model;
  std::array<int64_t, 2> image_size;
  int64_t rows_per_sample = 1;
};

inline const std::map<std::string, SmallModel>& small_models() {
  static const Json resnet = {{"name", "resnet"}, {"width", 2}};
  static const Json small_resnet = {{"name", "small_resnet"}, {"depth", 8}, {"width", 2}};
  static const ExportedFolder exported;
  static const std::map<std::string, SmallModel> all = {
      {"exported", {exported.model(), {12, 16}}},
      {"unet", {{{"name", "unet"}, {"base", 3}, {"levels", 2}}, {12, 16}}},
      {"fcn", {{{"name", "fcn"}, {"backbone", resnet}, {"auxiliary_weight", 0.4}}, {17, 24}}},
      {"classifier", {{{"name", "classifier"}, {"backbone", resnet}}, {40, 48}}},
      {"cifar_resnet", {{{"name", "cifar_resnet"}, {"depth", 8}, {"width", 2}}, {9, 12}}},
      {"frame_lstm", {{{"name", "frame_lstm"}, {"backbone", small_resnet}, {"hidden", 3}}, {32, 32}, 3}},
      {"pspnet", {{{"name", "pspnet"}, {"backbone", resnet}}, {17, 24}}},
      {"deeplab_v3",
       {{{"name", "deeplab_v3"},
         {"backbone", {{"name", "vgg16"}, {"width", 2}}},
         {"head_width", 4},
         {"auxiliary_weight", 0.4}},
        {32, 40}}},
      {"deeplab_v3_plus",
       {{{"name", "deeplab_v3_plus"}, {"backbone", resnet}, {"head_width", 4}, {"low_width", 3}}, {17, 24}}},
      {"backbone_unet",
       {{{"name", "backbone_unet"},
         {"backbone", {{"name", "plain"}, {"base", 2}}},
         {"output_stride", 8},
         {"decoder_width", 2},
         {"center", true}},
        {35, 40}}},
      {"segnet_basic", {{{"name", "segnet_basic"}, {"width", 3}}, {13, 18}}},
  };
  return all;
}

}  // namespace bnlab
