#include "harness/training/kernel_counter.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string_view>
#include <vector>

#include "harness/kernel_count.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSide = 8;  // of the images

// Views, and memory that is taken and not written.
bool launches_nothing(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name.starts_with("aten::empty") || name.starts_with("aten::is_") ||
      name.starts_with("aten::new_empty") || name == "aten::resize_" || name == "aten::result_type") {
    return true;
  }
  const auto schema = function.operator_schema();
  if (!schema || schema->returns().empty()) {
    return true;  // no operation of LibTorch's, as a node of the autograd graph
  }
  const auto* alias = schema->returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

// While this lives, counts the tensor operations of this thread; those made of others are not counted beside them.
class CountedOperations {
 public:
  CountedOperations() {
    open().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
              open().push_back(KernelCount::launches);
              return nullptr;
            },
            [](const at::RecordFunction& function, at::ObserverContext*) {
              const bool made_of_others = KernelCount::launches > open().back();
              open().pop_back();
              if (KernelCount::depth == 0 && !made_of_others && !launches_nothing(function)) {
                ++KernelCount::launches;
              }
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~CountedOperations() { at::removeCallback(handle_); }

 private:
  static std::vector<int64_t>& open() {  // launches when each of the operations under way began
    thread_local std::vector<int64_t> open;
    return open;
  }
  at::CallbackHandle handle_;
};

int64_t counted(const std::function<void()>& work) {
  const CountedOperations operations;
  const int64_t before = KernelCount::launches;
  work();
  return KernelCount::launches - before;
}

SiteKernels count(const std::vector<std::shared_ptr<Layer>>& layers, int64_t channels, const Towers& towers) {
  std::vector<at::Tensor> inputs = {at::arange(towers.local_samples() * channels * kSide * kSide, at::kFloat)
                                        .sin()
                                        .view({-1, channels, kSide, kSide})};
  inputs[0].set_requires_grad(true);
  for (const auto& layer : layers) {
    for (const at::Tensor& parameter : layer->parameters()) {
      inputs.push_back(parameter);
    }
  }
  SiteKernels kernels;
  for (int64_t step = 0; step < 3; ++step) {
    at::Tensor y = inputs[0];
    const Pass pass{.towers = towers,
                    .step = {step, 1000},
                    .batch = static_cast<uint64_t>(step),
                    .image_size = {kSide, kSide}};
    kernels.forward = counted([&] {
      for (const auto& layer : layers) {
        y = layer->forward(y, {}, pass);
      }
    });
    const at::Tensor dy = at::ones_like(y);
    kernels.backward = counted([&] { torch::autograd::grad({y}, inputs, {dy}); });
  }
  return kernels;
}

}  // namespace

SiteKernels count_site_kernels(Strategy& strategy, const NormSite& site, const Towers& towers) {
  const ConvSite conv{.name = site.name, .in = site.channels, .out = site.channels};
  const SiteKernels all = count({strategy.conv(conv), strategy.norm(site)}, site.channels, towers);
  const SiteKernels plain = count({strategy.Strategy::conv(conv)}, site.channels, towers);
  return {all.forward - plain.forward, all.backward - plain.backward};
}

}  // namespace bnlab
