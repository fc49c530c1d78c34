// Atrous spatial pyramid pooling (Chen et al. 2017) with the layers and names of torchvision: of one map
//   convs.0: a 1x1 convolution
//   convs.1, .2, .3: 3x3 convolutions with dilations of 1, 2 and 3 times 96 / output stride (12, 24, 36 at 8;
//   6, 12, 18 at 16)
//   convs.4: the mean over the image, through a 1x1 convolution
// each with norm and ReLU, all five side by side through `project`: 1x1 convolution - norm - ReLU - dropout.
// At convs.4 a norm sees one value per channel and image: a tower of one image cannot normalise there by
// itself.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/models/building_blocks.hpp"

namespace bnlab {

class Aspp : public torch::nn::Module {
 public:
  struct Shape {
    int64_t in = 0, width = 0;
    int64_t output_stride = 8;
    double dropout = 0;
  };

  Aspp(LayerMaker& layers, const std::string& name, const Shape& shape)
      : dropout_{name + ".project.3", shape.dropout} {
    const ConvSite small{.in = shape.in, .out = shape.width, .kernel = 1, .padding = 0};
    const auto list = register_module("convs", std::make_shared<torch::nn::Module>());
    const auto add = [&](const std::string& n, const ConvSite& site, const ConvNormPair::Names& names) {
      return list->register_module(
          n, std::make_shared<ConvNorm>(layers, name + ".convs." + n, site, Activation::relu, names));
    };
    spatial_.push_back(add("0", small, {"0", "1"}));
    for (int64_t i = 1; i <= 3; ++i) {
      const int64_t dilation = i * 96 / shape.output_stride;
      const ConvSite site{.in = shape.in, .out = shape.width, .padding = dilation, .dilation = dilation};
      spatial_.push_back(add(std::to_string(i), site, {"0", "1"}));
    }
    mean_ = add("4", small, {"1", "2"});
    ConvSite all = small;
    all.in = 5 * shape.width;
    project_ = register_module("project", std::make_shared<ConvNorm>(layers, name + ".project", all));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    return recomputed({x}, pass,
                      [this](const auto& inputs, const Pass& pass) { return joined(inputs[0], pass); });
  }

 private:
  at::Tensor joined(const at::Tensor& x, const Pass& pass) {
    std::vector<at::Tensor> maps;
    for (const auto& conv : spatial_) maps.push_back(conv->forward(x, {}, pass));
    const at::Tensor mean = mean_->forward(cell_means(x, 1), {}, pass);
    maps.push_back(resized(mean, x, Resizing::bilinear));
    return dropout(project_->forward(at::cat(maps, 1), {}, pass), dropout_, pass);
  }

  Dropout dropout_;
  std::vector<std::shared_ptr<ConvNorm>> spatial_;
  std::shared_ptr<ConvNorm> mean_, project_;
};

}  // namespace bnlab
