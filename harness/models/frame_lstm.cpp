// frame_lstm: a network over each frame of a clip, then one over their sequence (LRCN: Donahue et al. 2015).
//   features: any backbone and the mean of its last map, one vector per frame
//   head: LSTM over the frames in their order and its last output, or the mean over the frames (which is
//   blind to their order); then a linear layer to the classes
// The parameters of the LSTM have the names, the order of gates and the initial values of torch.nn.LSTM.
#include <torch/types.h>

#include <cmath>

#include "harness/models/backbone.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/model.hpp"

namespace bnlab::frame_lstm {

BNLAB_CHOICE(Temporal, lstm, mean)

struct Options : ImageEncoder {
  Temporal temporal = Temporal::lstm;
  int64_t hidden = 64;

  Options() { backbone = "small_resnet"; }

  void describe(OptionVisitor& option) {
    ImageEncoder::describe(option);
    option("temporal", temporal, "what joins the frames: an LSTM, or their mean");
    option("hidden", hidden, "values that the LSTM remembers").at_least(1).at_most(4096);
  }
};

// One layer, from [clips, frames, in] to its last output, [clips, hidden].
class Lstm : public torch::nn::Module {
 public:
  Lstm(const Model::Context& context, const std::string& name, int64_t in, int64_t hidden) : hidden_(hidden) {
    const auto add = [&](const std::string& own_name, at::IntArrayRef sizes) {
      const double bound = 1 / std::sqrt(static_cast<double>(hidden));
      weights_.push_back(
          register_parameter(own_name, uniform_weights(context, name + "." + own_name, sizes, bound)));
    };
    add("weight_ih_l0", {4 * hidden, in});
    add("weight_hh_l0", {4 * hidden, hidden});
    add("bias_ih_l0", {4 * hidden});
    add("bias_hh_l0", {4 * hidden});
  }

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor start = at::zeros({1, x.size(0), hidden_}, x.options());
    const auto results =
        at::lstm(x, {start, start}, weights_, /*has_biases=*/true, /*num_layers=*/1,
                 /*dropout=*/0, /*train=*/true, /*bidirectional=*/false, /*batch_first=*/true);
    return std::get<1>(results)[0];
  }

 private:
  int64_t hidden_;
  std::vector<at::Tensor> weights_;
};

class FrameLstmNetwork : public Network {
 public:
  FrameLstmNetwork(LayerMaker& layers, const Options& options, int64_t classes, const Model::Context& context)
      : trunk_(register_module("backbone", options.build(layers, "backbone"))), width_(options.features()) {
    if (options.temporal == Temporal::lstm)
      lstm_ = register_module("lstm", std::make_shared<Lstm>(context, "lstm", width_, options.hidden));
    fc_ = register_module("fc",
                          std::make_shared<Linear>(context, "fc", lstm_ ? options.hidden : width_, classes));
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    return {encoded(*trunk_, std::move(images), pass)};
  }

  Outputs head(const Maps& features, const Pass& pass) override {
    // The head is small: under autocast, too, it computes in the precision of its weights.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const int64_t clips = features[0].size(0) / pass.rows_per_sample;
    const at::Tensor frames =
        features[0].to(fc_->parameters()[0].scalar_type()).view({clips, pass.rows_per_sample, width_});
    return {fc_->forward(lstm_ ? lstm_->forward(frames) : frames.mean(1))};
  }

  Part part_of(const std::string& name) const override {
    return name.starts_with("fc.") ? Part::head : Network::part_of(name);
  }

 private:
  std::shared_ptr<Trunk> trunk_;
  int64_t width_;               // numbers per frame
  std::shared_ptr<Lstm> lstm_;  // null: the mean
  std::shared_ptr<Linear> fc_;
};

const Registered<Model> entry{{.name = "frame_lstm",
                               .summary = "a backbone over the frames of a clip, then an LSTM or their mean",
                               .source = "Donahue et al. 2015 (LRCN)",
                               .answers_for = Labelled::clips},
                              make<Model, ModelOf<FrameLstmNetwork, Options>>};

}  // namespace bnlab::frame_lstm
