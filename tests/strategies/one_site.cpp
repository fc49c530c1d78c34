#include "tests/strategies/one_site.hpp"

#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/layer/layer_rank.hpp"

namespace bnlab {

Batch batch_of(const LayerStep& step, const World& world) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : step.inputs) {
    sizes.push_back(x.size(0));
  }
  Batch batch;
  batch.towers = Towers(sizes, world.size(), world.rank());
  batch.images =
      at::cat(step.inputs).narrow(0, batch.towers.local_begin(), batch.towers.local_samples()).clone();
  return batch;
}

class OneSite::SiteNetwork : public Network {
 public:
  SiteNetwork(LayerMaker& layers, const LayerCase& c)
      : layer_(register_module(
            "site", c.conv ? convolution(layers, *c.conv)
                           : layers.norm({"site", c.steps.front().inputs.front().size(1), c.activation}))) {}
  at::Tensor features(at::Tensor x, const Pass& pass) override {
    return layer_->forward(std::move(x), {}, pass);
  }
  at::Tensor head(at::Tensor x, const Pass&) override { return x; }

 private:
  static std::shared_ptr<Layer> convolution(LayerMaker& layers, const LayerConv& conv) {
    return layers.conv(
        {"site", conv.v.size(1), conv.v.size(0), conv.v.size(2), conv.stride, conv.padding, true});
  }
  std::shared_ptr<Layer> layer_;
};

// Steps' inputs as calibration batches.
class OneSite::GivenBatches : public Calibration {
 public:
  GivenBatches(OneSite& site, const std::vector<LayerStep>& steps) : site_(site), steps_(steps) {}
  int64_t available() const override { return static_cast<int64_t>(steps_.size()); }
  void forward(int64_t index) override {
    Batch batch = batch_of(steps_.at(static_cast<size_t>(index)), site_.world_);
    batch.index = static_cast<uint64_t>(index);
    site_.strategy_->forward(*site_.network_, batch.images,
                             batch.pass({site_.training_steps_, 100}, Mode::calibrate));
  }

 private:
  OneSite& site_;
  const std::vector<LayerStep>& steps_;
};

OneSite::OneSite(const LayerCase& c, World& world, bool fresh_weights) : world_(world) {
  strategy_ = Registered<Strategy>::create(c.strategy, {.statistics = world.statistics(),
                                                        .host = world.host(),
                                                        .seed = c.seed,
                                                        .dtype = held_type(c.dtype),
                                                        .device = world.device(),
                                                        .steps = 0,
                                                        .fresh_weights = fresh_weights,
                                                        .replicas = false,
                                                        .shadows = {}});
  network_ = std::make_shared<SiteNetwork>(*strategy_, c);
  const at::NoGradGuard no_grad;
  const auto set = [](auto&& tensors, const char* name, const at::Tensor& value) {
    if (value.defined()) {
      tensors[name].copy_(value);
    }
  };
  auto parameters = network_->named_parameters();
  auto buffers = network_->named_buffers();
  set(parameters, "site.weight", c.weight);
  set(parameters, "site.bias", c.conv ? c.conv->bias : c.bias);
  if (c.conv) {
    set(parameters, "site.v", c.conv->v);
    set(parameters, "site.gain", c.conv->gain);
  }
  set(buffers, "site.running_mean", c.running_mean);
  set(buffers, "site.running_var", c.running_var);
  start_from_buffers();
}

OneSite::~OneSite() = default;

at::Tensor OneSite::apply(const LayerStep& step) {
  Batch batch = batch_of(step, world_);
  const bool backward = at::GradMode::is_enabled() && !step.gradients.empty();
  batch.images.requires_grad_(backward);
  const at::Tensor y =
      strategy_->forward(*network_, batch.images, batch.pass({training_steps_, 100}, step.mode));
  if (backward) {
    y.backward(at::cat(step.gradients)
                   .narrow(0, batch.towers.local_begin(), batch.towers.local_samples())
                   .contiguous());
  }
  training_steps_ += step.mode == Mode::train ? 1 : 0;
  return y.detach();
}

void OneSite::show_saved(const std::vector<LayerStep>& calibration) {
  if (RunningStatistics* statistics = strategy_->running_statistics()) {
    GivenBatches batches(*this, calibration);
    statistics->show({}, batches);
  }
}

void OneSite::start_from_buffers() {
  if (RunningStatistics* statistics = strategy_->running_statistics()) {
    statistics->start_from_buffers();
  }
}

void OneSite::load(const OneSite& other) {
  const at::NoGradGuard no_grad;
  auto parameters = network_->named_parameters(), buffers = network_->named_buffers();
  for (const auto& entry : other.network_->named_parameters()) {
    parameters[entry.key()].copy_(entry.value());
  }
  for (const auto& entry : other.network_->named_buffers()) {
    buffers[entry.key()].copy_(entry.value());
  }
  start_from_buffers();
}

std::vector<at::Tensor> OneSite::state() const {
  std::vector<at::Tensor> all = network_->parameters();
  for (const at::Tensor& buffer : network_->buffers()) {
    all.push_back(buffer);
  }
  return all;
}

std::set<std::string> OneSite::buffer_names() const {
  const std::vector<std::string> names = network_->named_buffers().keys();
  return {names.begin(), names.end()};
}

}  // namespace bnlab
