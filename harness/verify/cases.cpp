#include "harness/verify/cases.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"

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
    for (const size_t d : {2, 3})
      output[d] = (input[d] + 2 * conv->padding - conv->v.size(2)) / conv->stride + 1;
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
    if (sizes.size() == 2) step.inputs.back() += kApart * checkers(row, sizes);
    row += sizes[0];
    step.gradients.push_back(drawn(stream, output_of(sizes, conv), 0, 1));
  }
  for (auto* tensors : {&step.inputs, &step.gradients})
    for (at::Tensor& t : *tensors) t = t.to(shape.dtype);
  return step;
}

class Maker {
 public:
  explicit Maker(const Json& strategy)
      : strategy_(resolved_strategy(strategy)), reference_(reference_of(strategy_)) {}

  LayerCase make(const CaseShape& shape) {
    Stream stream(0, "verify", shape.seed);
    LayerCase c;
    c.strategy = strategy_;
    c.dtype = shape.dtype;
    c.memory_format = shape.memory_format;
    c.activation = shape.activation;
    c.seed = shape.seed;
    c.accumulate = shape.accumulate;
    c.statistics_per_step = shape.statistics_per_step;
    if (reference_->convolves()) {
      c.conv = drawn_convolution(stream, shape.sample[0], shape.seed);
      if (!held_by_layer(c.conv, shape.sample[0], c.activation).gain.defined())
        c.conv->gain = c.conv->bias = at::Tensor();
    }
    for (const Mode mode : shape.modes) c.steps.push_back(drawn_step(stream, shape, c.conv, mode));
    if (shape.has_state) give_state(c, shape.sample[0], stream);
    return c;
  }

 private:
  void give_state(LayerCase& c, int64_t inputs, Stream& stream) {
    const at::ScalarType type = statistics_type(c.dtype);
    const Sizes channels{c.conv ? c.conv->v.size(0) : inputs};
    const LayerStepAnswer& held = held_by_layer(c.conv, inputs, c.activation);
    if (held.weight_gradient.defined()) {
      c.weight = drawn(stream, channels, 0.5, 1).to(type);
      c.bias = drawn(stream, channels, 0, 1).to(type);
    }
    for (const auto& [name, gradient] : held.parameter_gradients)
      c.parameters[name] = drawn(stream, {gradient.size(0)}, 0.3, 0.1).to(type);
    if (held.running_mean.defined()) c.running_mean = drawn(stream, channels, 0, 1).to(type);
    if (held.running_var.defined()) c.running_var = (drawn(stream, channels, 0, 1).square() + 0.5).to(type);
  }

  // What the strategy's layer holds, by the reference's answer; nothing where that refuses the options.
  const LayerStepAnswer& held_by_layer(const std::optional<LayerConv>& conv, int64_t inputs,
                                       Activation activation) {
    const auto [held, is_new] = held_.try_emplace({inputs, activation, conv && conv->gain.defined()});
    if (is_new) {
      Stream stream(0, "verify/probe", 0);
      LayerCase probe;
      probe.strategy = strategy_;
      probe.conv = conv;
      probe.activation = activation;
      const CaseShape shape{.towers = Sizes(4, 12), .sample = {inputs, 2, 3}};
      probe.steps = {drawn_step(stream, shape, conv, Mode::train)};
      try {
        held->second = reference_->answer(probe).steps.front();
      } catch (const Error&) {  // what it holds does not matter
      }
    }
    return held->second;
  }

  Json strategy_;
  std::unique_ptr<Reference> reference_;
  // By channels of the input, activation, and whether there is a convolution with a gain.
  std::map<std::tuple<int64_t, Activation, bool>, LayerStepAnswer> held_;
};

const std::vector<Mode> kSteps{Mode::train,          Mode::train,          Mode::train,
                               Mode::evaluate_saved, Mode::evaluate_batch, Mode::train};
// Two steps of three passes, or three of two.
const std::vector<Mode> kPasses{Mode::train, Mode::train, Mode::train,          Mode::train,
                                Mode::train, Mode::train, Mode::evaluate_saved, Mode::evaluate_batch};
const Sizes kUneven{12, 6, 0, 18};
const Sizes kImage{8, 3, 4};
constexpr double kFar = 100;

// A row of the table.
struct Row {
  const char* group;
  CaseShape shape;
  double magnification = 1;
  std::optional<double> special = {};  // stands in the second step, in one channel of tower 1
  bool merges_once = false;            // the ranks' running statistics meet after several steps only
};

std::vector<Row> table(bool convolves) {
  const std::vector<std::pair<const char*, Sizes>> towers{{"float64", {6}},
                                                          {"float64", {6, 6}},
                                                          {"float64", {8, 4}},
                                                          {"empty towers", {0, 6}},
                                                          {"empty towers", {6, 0}},
                                                          {"all towers empty", {0, 0}},
                                                          {"float64", {6, 6, 6, 6}},
                                                          {"empty towers", kUneven},
                                                          {"float64", {3, 1, 4, 2}},
                                                          {"one value per channel", {1, 1, 1, 1}},
                                                          {"one value per channel", {0, 0, 1, 0}},
                                                          {"float64", Sizes(8, 2)},
                                                          {"empty towers", {0, 0, 12, 0}}};
  const std::vector<Sizes> samples =
      convolves ? std::vector<Sizes>{kImage} : std::vector<Sizes>{{8}, {8, 5}, kImage, {8, 2, 3, 2}};
  std::vector<Row> rows;
  for (const auto& [group, sizes] : towers)
    for (const Sizes& sample : samples) rows.push_back({group, {.towers = sizes, .sample = sample}});
  const std::vector<std::pair<const char*, at::ScalarType>> dtypes{{"float64", at::kDouble},
                                                                   {"float32", at::kFloat},
                                                                   {"half precision", at::kBFloat16},
                                                                   {"half precision", at::kHalf}};
  for (const auto& [group, dtype] : dtypes) {
    for (const Sizes& sample : samples) {
      CaseShape shape{.towers = kUneven, .sample = sample, .dtype = dtype};
      if (dtype != at::kDouble) rows.push_back({group, shape});
      if (sample.size() > 2) {  // channels_last has a meaning from four dimensions on
        shape.memory_format = at::MemoryFormat::ChannelsLast;
        rows.push_back({"channels last", shape});
      }
    }
  }
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    for (const Sizes& sizes : {kUneven, Sizes{6}}) {
      rows.push_back({"large mean",
                      {.towers = sizes, .sample = kImage, .dtype = dtype, .mean = kFar, .deviation = 1},
                      kFar});
    }
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    rows.push_back({.group = "NaN",
                    .shape = {.towers = Sizes(4, 6), .sample = kImage, .dtype = dtype},
                    .special = kNan});
  }
  for (const Sizes& sizes : {Sizes(4, 6), kUneven}) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    rows.push_back(
        {.group = "merged once", .shape = {.towers = sizes, .sample = kImage}, .merges_once = true});
    rows.push_back({.group = "merged once",
                    .shape = {.towers = sizes, .sample = kImage},
                    .special = kInf,
                    .merges_once = true});
  }
  // Here E[x2] - E[x]^2 exceeds the common bounds: it is off by 1e-16 (m / s)^2 = 2e-11.
  rows.push_back({"large mean", {.towers = kUneven, .sample = kImage, .mean = 1000}});
  for (const bool per_step : {false, true}) {
    CaseShape shape{.towers = kUneven, .sample = kImage, .statistics_per_step = per_step};
    for (const int64_t passes : {2, 3}) {
      shape.accumulate = passes;
      rows.push_back({"micro-batches", shape});
    }
    shape.towers = Sizes(4, 6);
    rows.push_back(
        {.group = "micro-batches", .shape = shape, .special = std::numeric_limits<double>::quiet_NaN()});
  }
  return rows;
}

// In the second step a tower has no gradient. Where a value is not finite there are no gradients at all,
// since what it does to them depends on the order of the sums.
void put_special_values(LayerCase& c, const Row& row) {
  for (size_t s = 0; s < c.steps.size(); ++s)
    c.steps[s].merges = !row.merges_once || (c.steps[s].mode != Mode::train) || s + 1 == c.steps.size();
  if (!row.special) {
    c.steps[1].gradients[0] = at::Tensor();
    return;
  }
  c.steps[1].inputs[1].select(1, 3).select(0, 0).fill_(*row.special);
  for (LayerStep& step : c.steps) step.gradients.clear();
}

std::string text_of(const Row& row) {
  const auto listed = [](std::string first, const Sizes& sizes) {
    for (const int64_t size : sizes) first += (first.empty() ? "" : ", ") + std::to_string(size);
    return first;
  };
  const CaseShape& shape = row.shape;
  return dtype_name(shape.dtype) +
         (shape.memory_format == at::MemoryFormat::Contiguous ? "" : ", channels_last") + ", towers of " +
         listed("", shape.towers) + " samples, [" + listed("n", shape.sample) + "]" +
         (shape.activation == Activation::relu ? ", relu" : "") + (shape.mean != 0 ? ", far from zero" : "") +
         (!row.special               ? ""
          : std::isnan(*row.special) ? ", with a NaN"
                                     : ", with an infinity") +
         (row.merges_once ? ", merged once" : "") +
         (shape.accumulate > 1 ? ", " + std::to_string(shape.accumulate) + " micro-batches per step" : "") +
         (shape.statistics_per_step ? ", remembered once" : "");
}

}  // namespace

LayerCase make_case(const Json& strategy, const CaseShape& shape) {
  return Maker(strategy).make(shape);
}

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kDouble     ? "float64"
         : dtype == at::kFloat    ? "float32"
         : dtype == at::kBFloat16 ? "bfloat16"
                                  : "float16";
}

std::vector<VerifyCase> verify_cases(const Json& strategy) {
  const bool convolves = reference_of(strategy)->convolves();
  Maker maker(strategy);
  std::vector<VerifyCase> cases;
  for (Row& row : table(convolves)) {
    const size_t index = cases.size();
    row.shape.seed = index;
    row.shape.modes = row.shape.accumulate > 1 ? kPasses : kSteps;
    row.shape.has_state = index % 3 != 0;
    // Far from zero a rounding error can turn the sign of what ReLU sees.
    const bool has_relu = index % 2 == 1 && !convolves && row.shape.mean == 0;
    row.shape.activation = has_relu ? Activation::relu : Activation::none;
    LayerCase made = maker.make(row.shape);
    put_special_values(made, row);
    cases.push_back({.group = row.group,
                     .text = text_of(row),
                     .layer_case = std::move(made),
                     .magnification = row.magnification});
  }
  return cases;
}

}  // namespace bnlab
