// Reference of weight_norm, whose site is a convolution.
//   w = gain v / norm(v) per output channel; y = conv(x, w) + bias
//   init "data", in training step 0 over all towers: t = conv(x, v / norm(v)), gain = init_scale / std(t),
//   bias = -mean(t) gain (0 with mean_only_bn)
//   mean_only_bn: y = conv(x, w) - m + bias, m the mean over the tower or over all towers
#include <torch/types.h>

#include <algorithm>

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

// The parameters of a site and what it does in one step.
class Convolution {
 public:
  explicit Convolution(const LayerCase& c)
      : options_(c.strategy),
        conv_(*c.conv),
        dtype_(c.dtype),
        held_(statistics_type(c.dtype)),
        v_(leaf(conv_.v, held_)),
        gain_(leaf(conv_.gain.defined() ? conv_.gain : v_.detach().flatten(1).norm(2, 1), held_)),
        bias_(leaf(conv_.bias.defined() ? conv_.bias : at::zeros_like(gain_), held_)),
        running_(
            {c.running_mean.defined() ? leaf(c.running_mean, held_).detach() : at::zeros_like(bias_).detach(),
             at::ones_like(bias_).detach()},
            options_.at("momentum"), held_),
        centres_(options_.at("mean_only_bn").get<bool>()),
        pooled_(options_.at("scope") == "pooled"),
        from_data_(options_.at("init") == "data"),
        passes_(static_cast<size_t>(c.accumulate), c.statistics_per_step) {
    const auto idle = [&](const char* key, const Json& standard) { return options_.at(key) == standard; };
    if ((!centres_ && !(idle("scope", "tower") && idle("momentum", 0.1))) ||
        (!from_data_ && !idle("init_scale", 1.0))) {
      refuse("weight_norm: an option without effect");
    }
  }

  LayerStepAnswer step(const LayerStep& step) {
    Tensors all = leaves(step.inputs, dtype_);
    if (step.mode == Mode::train && step_++ == 0 && from_data_) initialise(all);
    // The forward pass convolves with the weight as the case's dtype holds it.
    const at::Tensor exact = direction() * gain_.view({-1, 1, 1, 1});
    const at::Tensor w = exact + (exact.to(dtype_).to(at::kDouble) - exact).detach();
    Tensors y;
    for (const at::Tensor& tower : all) y.push_back(at::conv2d(tower, w, {}, conv_.stride, conv_.padding));
    if (centres_) y = centred(y, step.mode, step.own_share);
    LayerStepAnswer out;
    for (at::Tensor& tower : y) {
      tower = tower + per_channel(bias_, 4);
      out.outputs.push_back(tower.detach());
    }
    all.insert(all.end(), {v_, gain_, bias_});
    Tensors found = gradients(y, leaves(step.gradients, dtype_), all);
    out.bias_gradient = found.back();
    out.gain_gradient = found[found.size() - 2];
    out.v_gradient = found[found.size() - 3];
    if (!step.gradients.empty()) {
      found.resize(step.inputs.size());
      out.input_gradients = found;
    }
    if (step.merges) {
      out.gain = gain_.detach().clone();
      out.bias = bias_.detach().clone();
      out.running_mean = centres_ ? running_.pair().mean : at::Tensor();
    }
    return out;
  }

 private:
  at::Tensor direction() const { return v_ / v_.flatten(1).norm(2, 1).view({-1, 1, 1, 1}); }

  void initialise(const Tensors& x) {
    const at::NoGradGuard no_grad;
    Tensors t;
    for (const at::Tensor& tower : x)
      t.push_back(at::conv2d(tower, direction(), {}, conv_.stride, conv_.padding));
    const Moments batch = moments(t);
    if (batch.count == 0) return;
    if ((batch.var == 0).any().item<bool>())
      refuse("weight_norm: an output channel does not vary over the first batch (site site)");
    gain_.copy_(options_.at("init_scale").get<double>() / batch.var.sqrt());
    bias_.copy_(centres_ ? at::zeros_like(bias_) : -batch.mean * gain_);
  }

  // Of one tower in an evaluation: by the running mean, and by the means of the samples, which weigh
  // `own_share`.
  at::Tensor centred_by_running(const at::Tensor& tower, double own_share) const {
    Tensors samples;
    for (const at::Tensor& sample : tower.split(1)) {
      const at::Tensor own = sample.size(0) > 0 ? moments({sample}).mean.detach() : running_.pair().mean;
      samples.push_back(sample - per_channel(own_share * own + (1 - own_share) * running_.pair().mean, 4));
    }
    return at::cat(samples);
  }

  Tensors centred(const Tensors& t, Mode mode, double own_share) {
    const Moments all = moments(t);
    Tensors y;
    for (const at::Tensor& tower : t) {
      const Moments set = pooled_ ? all : moments({tower});
      if (set.count == 1 && mode == Mode::train) {
        refuse(
            "more than 1 value per channel is needed to normalise (site site, strategy weight_norm, set of "
            "1)");
      }
      if (mode == Mode::evaluate_saved)
        y.push_back(centred_by_running(tower, own_share));
      else
        y.push_back(set.mean.defined() ? tower - per_channel(set.mean, 4) : tower);
    }
    if (mode == Mode::train) {
      passes_.add(t);
      remember(passes_.remembered());
    }
    return y;
  }

  void remember(const std::vector<Tensors>& passes) {
    if (passes.empty()) return;
    const Tensors towers = joined(passes);
    if (const Moments all = moments(towers); pooled_ && all.count > 0)
      running_.remember({running_.written(all)});
    std::vector<RunningPair::OfTower> written;
    for (size_t t = 0; t < towers.size() && !pooled_; ++t)
      if (const Moments set = moments({towers[t]}); set.count > 0)
        written.push_back({t, running_.written(set)});
    running_.remember(written, /*in_turn=*/false);
  }

  const Json& options_;
  const LayerConv& conv_;
  at::ScalarType dtype_, held_;
  at::Tensor v_, gain_, bias_;  // [out, in, k, k], [out], [out]
  RunningPair running_;         // its variance is of no use
  bool centres_, pooled_, from_data_;
  PassesOfStep passes_;
  int64_t step_ = 0;
};

class WeightNorm : public Reference {
 public:
  LayerAnswer answer(const LayerCase& c) const override {
    Convolution site(c);
    LayerAnswer answer;
    for (const LayerStep& step : c.steps) answer.steps.push_back(site.step(step));
    return answer;
  }

  std::vector<Json> variants() const override {
    return {Json::object(),
            {{"init", "none"}},
            {{"init_scale", 0.5}},
            {{"mean_only_bn", true}},
            {{"mean_only_bn", true}, {"init", "none"}, {"momentum", nullptr}},
            {{"mean_only_bn", true}, {"scope", "pooled"}},
            {{"mean_only_bn", true}, {"scope", "pooled"}, {"momentum", nullptr}},
            {{"scope", "pooled"}}};
  }

  bool convolves() const override { return true; }
};

const Registered<Reference> entry{about("weight_norm"), [](const Json&, const Reference::Context&) {
                                    return std::make_unique<WeightNorm>();
                                  }};

}  // namespace
}  // namespace bnlab::reference
