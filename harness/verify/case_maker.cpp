#include "harness/verify/cases.hpp"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "harness/error.hpp"
#include "harness/random.hpp"

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;

at::Tensor drawn(Stream& stream, const Sizes& shape, double mean, double deviation) {
  at::Tensor t = at::empty(shape, at::kDouble);
  double* values = t.mutable_data_ptr<double>();
  std::generate(values, values + t.numel(), [&] { return mean + deviation * stream.normal(); });
  return t;
}

// 0 and 1 by turns along samples (from `first` on) and channels, [n, C].
at::Tensor checkers(int64_t first, const Sizes& shape) {
  const at::Tensor n = at::arange(first, first + shape[0], at::kDouble),
                   c = at::arange(shape[1], at::kDouble);
  return (n.unsqueeze(1) + c).remainder(2);
}

// Sets of two values, which only [n, C] has, would else be nearly equal by chance and magnify rounding.
constexpr double kApart = 20;

LayerConv drawn_convolution(Stream& stream, int64_t channels, uint64_t seed) {
  LayerConv conv;
  const int64_t kernel = seed % 2 == 0 ? 3 : 2;
  conv.v = drawn(stream, {5, channels, kernel, kernel}, 0.1, 0.5);
  conv.stride = seed % 3 == 0 ? 2 : 1;
  conv.padding = seed % 2 == 0 ? 1 : 0;
  if (seed % 4 != 0) {
    conv.gain = drawn(stream, {5}, 1, 0.3);
    conv.bias = drawn(stream, {5}, 0, 1);
  }
  return conv;
}

Sizes output_of(const Sizes& input, const std::optional<LayerConv>& conv) {
  Sizes output = input;
  if (conv) {
    output[1] = conv->v.size(0);
    for (const size_t d : {2, 3}) {
      output[d] = (input[d] + 2 * conv->padding - conv->v.size(2)) / conv->stride + 1;
    }
  }
  return output;
}

LayerStep drawn_step(Stream& stream, const CaseShape& shape, const std::optional<LayerConv>& conv,
                     Mode mode) {
  LayerStep step;
  step.mode = mode;
  int64_t row = 0;
  for (size_t t = 0; t < shape.towers.size(); ++t) {
    Sizes sizes{shape.towers[t] + (mode == Mode::train || shape.towers[t] == 0 ? 0 : 1)};
    sizes.insert(sizes.end(), shape.sample.begin(), shape.sample.end());
    // Towers differ in their means, so that the spread between them counts.
    step.inputs.push_back(drawn(stream, sizes, shape.mean + 0.5 * static_cast<double>(t), shape.deviation));
    if (sizes.size() == 2) {
      step.inputs.back() += kApart * checkers(row, sizes);
    }
    row += sizes[0];
    step.gradients.push_back(drawn(stream, output_of(sizes, conv), 0, 1));
  }
  for (auto* tensors : {&step.inputs, &step.gradients}) {
    for (at::Tensor& t : *tensors) {
      t = t.to(shape.dtype);
    }
  }
  return step;
}

class Maker {
 public:
  explicit Maker(const Json& strategy) : strategy_(strategy), reference_(reference_of(strategy)) {}

  LayerCase make(const CaseShape& shape) {
    Stream stream(0, "verify", shape.seed);
    LayerCase c;
    c.strategy = strategy_;
    c.dtype = shape.dtype;
    c.memory_format = shape.memory_format;
    c.activation = shape.activation;
    c.seed = shape.seed;
    if (reference_->convolves()) {
      c.conv = drawn_convolution(stream, shape.sample[0], shape.seed);
    }
    for (const Mode mode : shape.modes) {
      c.steps.push_back(drawn_step(stream, shape, c.conv, mode));
    }
    if (shape.has_state) {
      give_state(c, shape.sample[0], stream);
    }
    return c;
  }

 private:
  void give_state(LayerCase& c, int64_t inputs, Stream& stream) {
    const at::ScalarType type = statistics_type(c.dtype);
    const Sizes channels{c.conv ? c.conv->v.size(0) : inputs};
    const LayerStepAnswer& held = held_by_layer(c.conv, inputs);
    if (held.weight_gradient.defined()) {
      c.weight = drawn(stream, channels, 0.5, 1).to(type);
      c.bias = drawn(stream, channels, 0, 1).to(type);
    }
    if (held.running_mean.defined()) {
      c.running_mean = drawn(stream, channels, 0, 1).to(type);
    }
    if (held.running_var.defined()) {
      c.running_var = (drawn(stream, channels, 0, 1).square() + 0.5).to(type);
    }
  }

  // What the strategy's layer holds, by the reference's answer; nothing where that refuses the options.
  const LayerStepAnswer& held_by_layer(const std::optional<LayerConv>& conv, int64_t inputs) {
    if (!held_) {
      Stream stream(0, "verify/probe", 0);
      LayerCase probe;
      probe.strategy = strategy_;
      probe.conv = conv;
      const CaseShape shape{.towers = Sizes(4, 12), .sample = {inputs, 2, 3}};
      probe.steps = {drawn_step(stream, shape, conv, Mode::train)};
      held_.emplace();
      try {
        held_ = reference_->answer(probe).steps.front();
      } catch (const Error&) {  // what it holds does not matter
      }
    }
    return *held_;
  }

  const Json& strategy_;
  std::unique_ptr<Reference> reference_;
  std::optional<LayerStepAnswer> held_;
};

}  // namespace

LayerCase make_case(const Json& strategy, const CaseShape& shape) {
  const Json resolved = resolved_strategy(strategy);
  return Maker(resolved).make(shape);
}

}  // namespace bnlab
