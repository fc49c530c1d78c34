// pspnet: pyramid scene parsing (Zhao et al. 2017) on a dilated backbone, with the layers and names of semseg
// (but that its backbone stands under `backbone.`; semseg's is resnet with the deep stem and
// dilate_first_block).
//   pyramid: the last map is averaged over the cells of a grid of b x b, for each b of `bins`; each such map
//   goes through a 1x1 convolution to 1/(number of bins) of the channels - norm - ReLU, grows back
//   bilinearly, and stands behind the map
//   cls: 3x3 convolution to a quarter of the backbone's channels - norm - ReLU - dropout of channels - 1x1 to
//   the classes
//   auxiliary head, if wanted: the same on the map before the last
// Every bilinear resize is one with align_corners, so that sizes of 8k + 1 fit exactly; others are taken too.
// At bin 1 a norm sees one value per channel and image: a tower of one image cannot normalise there by
// itself.
#include <torch/types.h>

#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"
#include "harness/models/pixel_network.hpp"

namespace bnlab::pspnet {

struct Options : WithAuxiliary {
  std::vector<int64_t> bins = {1, 2, 3, 6};
  bool norm_at_bin_1 = true;
  double dropout = 0.1;

  Options() {
    output_stride = 8;
    auxiliary_weight = 0.4;
  }

  void describe(OptionVisitor& option) {
    WithAuxiliary::describe(option);
    option("bins", bins, "cells along height and along width, of each level of the pyramid")
        .at_least(1)
        .at_most(64)
        .not_empty();
    option("norm_at_bin_1", norm_at_bin_1,
           "false: where the bin is 1 a convolution with a bias stands without a norm");
    option("dropout", dropout, "share of the channels that become 0 before the last layer")
        .at_least(0)
        .below(1);
  }

  void check(const RunOutline& run, Problems& problems) const {
    WithAuxiliary::check(run, problems);
    if (in() % levels() != 0) {
      problems.add("bins", "expected as many as divide the " + std::to_string(in()) +
                               " channels of the backbone's last map, got " + std::to_string(levels()));
    }
  }

  int64_t in() const { return feature_channels()[4]; }
  int64_t levels() const { return static_cast<int64_t>(bins.size()); }
  int64_t branch_width() const { return in() / levels(); }

  Channels norm_channels() const {
    Channels channels = WithAuxiliary::norm_channels();
    channels.push_back(in() / 4);
    if (norm_at_bin_1 || bins != std::vector<int64_t>(bins.size(), 1)) channels.push_back(branch_width());
    return channels;
  }
};

// One level: what is done to the averages. Its layers are numbered as in semseg, where 0 is the averaging.
class Level : public torch::nn::Module {
 public:
  Level(LayerMaker& layers, const std::string& name, const Options& options, int64_t bin) : bin_(bin) {
    const bool has_norm = bin != 1 || options.norm_at_bin_1;
    conv_ = register_module("1", layers.conv({.name = name + ".1",
                                              .in = options.in(),
                                              .out = options.branch_width(),
                                              .kernel = 1,
                                              .padding = 0,
                                              .norm_follows = has_norm}));
    if (has_norm)
      norm_ = register_module("2", layers.norm({name + ".2", options.branch_width(), Activation::relu}));
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    const at::Tensor y = conv_->forward(cell_means(x, bin_), {}, pass);
    return resized(norm_ ? norm_->forward(y, {}, pass) : y.relu(), x, Resizing::bilinear_corners);
  }

 private:
  int64_t bin_;
  std::shared_ptr<Layer> conv_, norm_;
};

class Pyramid : public torch::nn::Module {
 public:
  Pyramid(LayerMaker& layers, const std::string& name, const Options& options) {
    const auto list = register_module("features", std::make_shared<torch::nn::Module>());
    for (const int64_t bin : options.bins) {
      const std::string n = std::to_string(levels_.size());
      levels_.push_back(list->register_module(
          n, std::make_shared<Level>(layers, path(name, "features." + n), options, bin)));
    }
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) {
    return recomputed({x}, pass, [this](const auto& inputs, const Pass& pass) {
      std::vector<at::Tensor> maps = inputs;
      for (const auto& level : levels_) maps.push_back(level->forward(inputs[0], pass));
      return at::cat(maps, 1);
    });
  }

 private:
  std::vector<std::shared_ptr<Level>> levels_;
};

class PspNetwork : public PixelNetwork {
 public:
  PspNetwork(LayerMaker& layers, const Options& options, int64_t classes)
      : PixelNetwork(layers, options),
        pyramid_(register_module("ppm", std::make_shared<Pyramid>(layers, "ppm", options))) {
    const PixelHead::Shape shape{.in = 2 * options.in(),
                                 .width = options.in() / 4,
                                 .classes = classes,
                                 .dropout = options.dropout,
                                 .drops_channels = true,
                                 .align_corners = true};
    head_ = register_module("cls", std::make_shared<PixelHead>(layers, "cls", shape));
    add_auxiliary(layers, options, "aux", shape);
  }

 private:
  at::Tensor gathered(const Maps& maps, const Pass& pass) override {
    return pyramid_->forward(maps[4], pass);
  }

  std::shared_ptr<Pyramid> pyramid_;
};

const Registered<Model> entry{{.name = "pspnet",
                               .summary = "pyramid of averages over the last map of a dilated backbone",
                               .source = "Zhao et al. 2017; layers and names as in semseg"},
                              make<Model, ModelOf<PspNetwork, Options>>};

}  // namespace bnlab::pspnet
