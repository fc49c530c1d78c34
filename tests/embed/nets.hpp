// What the tests of the library share: batches, norm layers of LibTorch, comparisons.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <bnlab.hpp>
#include <functional>
#include <string>

namespace bnlab {

constexpr int64_t kChannels = 3;

inline at::Tensor batch(int64_t rows, uint64_t seed, int64_t side = 5) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({rows, kChannels, side, 4}, generator, at::kDouble) * 3 + 1;
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

// A double LibTorch layer, with its count of batches left integral.
inline torch::nn::BatchNorm2d plain_norm(std::optional<double> momentum = 0.1) {
  torch::nn::BatchNorm2d layer(torch::nn::BatchNorm2dOptions(kChannels).momentum(momentum));
  layer->to(at::kDouble);
  layer->num_batches_tracked.set_data(layer->num_batches_tracked.to(at::kLong));
  return layer;
}

inline BatchNorm norm_of(const BatchNormOptions& options) {
  BatchNorm layer(options);
  layer->to(at::kDouble);
  return layer;
}

// One training step's output, and the gradients of input and weight.
struct Trained {
  at::Tensor y, dx, dweight;
};

template <class Layer>
Trained train(Layer& layer, const at::Tensor& images, const at::Tensor& dy) {
  const at::Tensor x = images.detach().requires_grad_();
  layer->zero_grad();
  const at::Tensor y = layer->forward(x);
  y.backward(dy);
  const at::Tensor dweight = layer->named_parameters()["weight"].grad();
  return {y.detach(), x.grad(), dweight.defined() ? dweight.clone() : dweight};
}

inline std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// A Sequential in a Sequential.
struct BlockImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Block);

#define EXPECT_SAYS(body, text) \
  EXPECT_NE(refusal([&] { body; }).find(text), std::string::npos) << refusal([&] { body; })

}  // namespace bnlab
