#include "harness/counting/step_cost.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string_view>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/counting_communicator.hpp"
#include "harness/counting/launches.hpp"
#include "harness/models/model.hpp"
#include "harness/strategy.hpp"
#include "harness/support/kernel_count.hpp"

namespace bnlab {
namespace {

// The kernels that a strategy's work at one norm site takes on a GPU, counted on the CPU (kernel_count.hpp).
// Not counted are a residual's gradient (one more), pairs that are carried for other populations (one more
// each), copies by which a kernel brings a tensor into another layout, and copies between a GPU and its host.
struct SiteKernels {
  int64_t forward = 0, backward = 0;
};

constexpr int64_t kSide = 8;

// A sum and a division on the CPU, one kernel on a GPU.
bool is_one_kernel(const at::RecordFunction& function) {
  return std::string_view(function.name()) == "aten::mean";
}

// A convolution adds its bias itself on the CPU, and by a kernel of its own on a GPU.
bool adds_a_bias(const at::RecordFunction& function) {
  return std::string_view(function.name()) == "aten::conv2d" && function.inputs()[2].isTensor() &&
         function.inputs()[2].toTensor().defined();
}

// While this lives, counts the tensor operations of this thread; those made of others are not counted beside
// them.
class CountedOperations {
 public:
  CountedOperations() {
    open().clear();
    at::RecordFunctionCallback callback(begins, ends);
    callback.scopes({at::RecordScope::FUNCTION}).needsInputs(true);
    handle_ = at::addThreadLocalCallback(callback);
  }
  ~CountedOperations() { at::removeCallback(handle_); }

 private:
  struct Open {
    int64_t before;  // launches when it began
    bool bias;
  };
  static std::vector<Open>& open() {  // the operations under way
    thread_local std::vector<Open> open;
    return open;
  }
  static std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
    open().push_back({KernelCount::launches, adds_a_bias(function)});
    return nullptr;
  }
  static void ends(const at::RecordFunction& function, at::ObserverContext*) {
    const auto [before, bias] = open().back();
    open().pop_back();
    const bool made_of_others = KernelCount::launches > before;
    if (KernelCount::depth > 0 || launches_nothing(function)) return;
    if (!made_of_others || is_one_kernel(function)) KernelCount::launches = before + 1;
    KernelCount::launches += bias ? 1 : 0;
  }

  at::CallbackHandle handle_;
};

int64_t counted(const std::function<void()>& work) {
  const CountedOperations operations;
  const int64_t before = KernelCount::launches;
  work();
  return KernelCount::launches - before;
}

// Layers one after the other.
class Chain : public Network {
 public:
  explicit Chain(std::vector<std::shared_ptr<Layer>> layers) : layers_(std::move(layers)) {
    for (size_t i = 0; i < layers_.size(); ++i) register_module(std::to_string(i), layers_[i]);
  }
  Maps features(at::Tensor x, const Pass& pass) override {
    for (const auto& layer : layers_) x = layer->forward(x, {}, pass);
    return {x};
  }
  Outputs head(const Maps& features, const Pass&) override { return {features[0]}; }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

// Of the last pass of the third training step.
SiteKernels count(Strategy& strategy, Chain& network, int64_t channels, const Towers& towers,
                  int64_t accumulate) {
  const at::Tensor images = at::arange(towers.local_samples() * channels * kSide * kSide, at::kFloat)
                                .sin()
                                .view({-1, channels, kSide, kSide});
  SiteKernels kernels;
  for (int64_t i = 0; i < 3 * accumulate; ++i) {
    const int64_t step = i / accumulate;
    const Pass pass{.towers = towers,
                    .step = {step, 1000},
                    .batch = static_cast<uint64_t>(step),
                    .micro_batch = {.index = i % accumulate, .count = accumulate},
                    .details = {.image_size = {kSide, kSide}}};
    at::Tensor y;
    kernels.forward = counted([&] { y = strategy.forward(network, images, pass).logits; });
    const at::Tensor dy = at::ones_like(y);
    kernels.backward = counted([&] {
      torch::autograd::grad({y}, network.parameters(), {dy}, {}, /*create_graph=*/false,
                            /*allow_unused=*/true);
    });
  }
  return kernels;
}

// In the last pass of the third training step: of the site (its normalisation, its activation, the running
// statistics), and of what the strategy adds to the convolution before it; collectives are not among them.
SiteKernels count_site_kernels(Strategy& strategy, const NormSite& site, const Towers& towers,
                               int64_t accumulate) {
  // A convolution before it, so that gradients pass through; it counts in both.
  const ConvSite first{.name = "first", .in = site.channels, .out = site.channels};
  const ConvSite conv{.name = site.name, .in = site.channels, .out = site.channels};
  Chain all({strategy.Strategy::conv(first), strategy.conv(conv), strategy.norm(site)});
  Chain plain({strategy.Strategy::conv(first), strategy.Strategy::conv(conv)});
  const SiteKernels with = count(strategy, all, site.channels, towers, accumulate);
  const SiteKernels without = count(strategy, plain, site.channels, towers, accumulate);
  return {with.forward - without.forward, with.backward - without.backward};
}

constexpr int64_t kSteps = 1000;  // for schedules given as fractions of the run

// Norm sites side by side: each is given two values per channel of an image, and all are added.
class SitesAlone : public Network {
 public:
  SitesAlone(LayerMaker& layers, const std::vector<SiteValues>& sites) {
    for (const SiteValues& site : sites) {
      channels_.push_back(site.channels);
      layers_.push_back(
          register_module(std::to_string(layers_.size()), layers.norm({site.name, site.channels})));
    }
  }
  Maps features(at::Tensor images, const Pass& pass) override {
    at::Tensor sum = at::zeros({images.size(0), 1});
    for (size_t i = 0; i < layers_.size(); ++i) {
      const int64_t rows = images.size(0), channels = channels_[i];
      const at::Tensor x = at::arange(rows * channels * 2, at::kFloat).sin().view({rows, channels, 1, 2});
      sum = sum + layers_[i]->forward(x.requires_grad_(), {}, pass).mean({1, 2, 3}).unsqueeze(1);
    }
    return {sum};
  }
  Outputs head(const Maps& features, const Pass&) override { return {features[0]}; }

 private:
  std::vector<int64_t> channels_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

Towers towers_of(const StepCase& step_case) {
  return Towers(std::vector<int64_t>(static_cast<size_t>(step_case.towers), step_case.batch_per_tower),
                step_case.ranks, 0);
}

// A rank's step, and what it is made on.
struct Counted {
  Counted(const StepCase& step_case, const BuiltNetwork::Build& build)
      : towers(towers_of(step_case)),
        communicator(step_case.ranks, ledger),
        context{.statistics = communicator,
                .host = communicator,
                .steps = kSteps,
                .samples_per_tower = towers.all_samples()},
        built(step_case.strategy, context, build) {}

  StepCost count(const StepCase& step_case) {
    StepCost cost;
    cost.notes = built.strategy().notes();
    cost.norm_sites = static_cast<int64_t>(built.sites().size());
    const int64_t values = towers.local_samples() * 3 * step_case.height * step_case.width;
    Batch batch{
        at::arange(values, at::kFloat).sin().view({-1, 3, step_case.height, step_case.width}), {}, towers};
    ledger.keep_list(true);
    for (int64_t i = 0; i < 2 * step_case.accumulate; ++i) {
      const int64_t step = i / step_case.accumulate;
      batch.index = static_cast<uint64_t>(step);
      batch.micro_batch = {.index = i % step_case.accumulate, .count = step_case.accumulate};
      if (batch.micro_batch.is_first())
        ledger.clear();  // what only a first step does is not the price of a step
      const Outputs outputs = built.forward(batch, {step, kSteps}, Mode::train);
      at::Tensor loss = outputs.logits.square().mean();
      if (outputs.auxiliary.defined()) loss = loss + outputs.auxiliary.square().mean();
      loss.backward();
    }
    for (size_t p = 0; p < kPurposeNames.size(); ++p) {
      const Traffic& traffic = ledger.of(static_cast<Purpose>(p));
      if (traffic.collectives > 0)
        cost.exchanges.push_back({kPurposeNames[p], traffic.collectives, traffic.bytes});
    }
    for (const Collective& each : ledger.list())
      cost.calls.push_back({each.op, kPurposeNames[static_cast<size_t>(each.purpose)], each.bytes});
    return cost;
  }

  Towers towers;
  Ledger ledger;
  CountingCommunicator communicator;
  Strategy::Context context;
  BuiltNetwork built;
};

}  // namespace

StepCost count_step(const StepCase& step_case) {
  Counted counted(
      step_case,
      builder_of(step_case.model, {.image_sizes = {{step_case.height, step_case.width}}}, step_case.classes));
  StepCost cost = counted.count(step_case);
  for (const at::Tensor& parameter : counted.built.network().parameters())
    cost.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  if (!counted.built.sites().empty()) {
    const auto untrained = Registered<Strategy>::create(step_case.strategy, counted.context);
    const SiteKernels kernels =
        count_site_kernels(*untrained, counted.built.sites().front(), counted.towers, step_case.accumulate);
    cost.forward_kernels = kernels.forward;
    cost.backward_kernels = kernels.backward;
  }
  return cost;
}

StepCost count_sites(const StepCase& step_case, const std::vector<SiteValues>& sites) {
  Counted counted(step_case, [&](LayerMaker& layers) { return std::make_shared<SitesAlone>(layers, sites); });
  return counted.count(step_case);
}

}  // namespace bnlab
