// What the rows of harness/embed/like_pytorch.md share: a BatchNorm and a BatchNorm2d side by side.
#pragma once

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "nets.hpp"

namespace bnlab {

namespace nn = torch::nn;
using Options = nn::BatchNorm2dOptions;

// A layer of each kind with the same options, in float64.
struct Both {
  explicit Both(const Options& options = kChannels)
      : ours(norm_of(BatchNormOptions(options.num_features())
                         .eps(options.eps())
                         .momentum(options.momentum())
                         .affine(options.affine())
                         .track_running_stats(options.track_running_stats()))),
        theirs(options) {
    theirs->to(at::kDouble);
    if (theirs->num_batches_tracked.defined())
      theirs->num_batches_tracked.set_data(theirs->num_batches_tracked.to(at::kLong));
  }

  template <class Body>
  void each(const Body& body) {
    body(*ours);
    body(*theirs);
  }

  // A pass of each, forward and backward: the largest difference of outputs, gradients and buffers.
  double pass(const at::Tensor& images) {
    std::vector<at::Tensor> seen[2];
    size_t which = 0;
    each([&](auto& layer) {
      const at::Tensor x = images.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
      for (const auto& parameter : {layer.weight, layer.bias})
        if (parameter.defined() && parameter.is_leaf())
          parameter.mutable_grad() = at::Tensor();  // BatchNorm2d's zero_grad passes over assigned ones
      const at::Tensor y = layer.forward(x);
      y.backward(at::arange(y.numel(), y.options()).sin().view(y.sizes()));
      seen[which] = {y, x.grad()};
      for (const auto& parameter : {layer.weight, layer.bias})
        if (parameter.defined() && parameter.is_leaf() && parameter.requires_grad())
          seen[which].push_back(parameter.grad());
      for (const auto& buffer : {layer.running_mean, layer.running_var, layer.num_batches_tracked})
        if (buffer.defined()) seen[which].push_back(buffer.clone());
      ++which;
    });
    EXPECT_EQ(seen[0].size(), seen[1].size());
    double most = 0;
    for (size_t i = 0; i < seen[0].size(); ++i)
      most = std::max(most, difference(seen[0][i].to(at::kDouble), seen[1][i].to(at::kDouble)));
    return most;
  }
  double train(int steps = 3) {
    double most = 0;
    each([](auto& layer) { layer.train(); });
    for (int step = 0; step < steps; ++step)
      most = std::max(most, pass(batch(6, static_cast<uint64_t>(next++))));
    return most;
  }
  double evaluate() {
    each([](auto& layer) { layer.eval(); });
    return pass(batch(2, 90));
  }

  BatchNorm ours;
  nn::BatchNorm2d theirs;
  int next = 0;
};

inline at::Tensor random(int64_t seed) {
  return batch(1, static_cast<uint64_t>(seed), 1)[0].flatten().narrow(0, 0, kChannels).abs() + 0.5;
}

constexpr double kSame = 1e-11;
#define EXPECT_SAME(value) EXPECT_LT(value, kSame)

template <class From, class To>
void copy_through_a_file(From& from, To& to) {
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
}

}  // namespace bnlab
