#include "harness/vectors/cases.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "harness/support/random.hpp"
#include "harness/verify/cases.hpp"

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;
using Dtypes = std::vector<at::ScalarType>;

const Dtypes kAll{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};
const Dtypes kWide{at::kDouble, at::kFloat};
const Dtypes kNarrow{at::kBFloat16, at::kHalf};
const Sizes kVector{3}, kSeries{3, 5}, kImage{3, 4, 5}, kVolume{3, 2, 3, 4};
constexpr Mode kTrain = Mode::train, kEval = Mode::evaluate_saved;

struct Shape {
  std::string name, catches;
  Sizes rows;
  Sizes sample;        // channels and positions
  double mean = 0.5;   // rank 0's values in channel 0; a quarter more in each channel
  double apart = 0.5;  // from one rank's mean to the next's
  double deviation = 2;
  Json options = Json::object();  // eps, momentum, affine, where they are not PyTorch's
  size_t group = 0;               // ranks that share statistics; 0: all
  bool channels_last = false;
  std::vector<Mode> modes{kTrain};
  bool backward_after_all = false;
  bool may_refuse = false;
  std::optional<double> special =
      {};              // stands once in channel 1 of the last rank; then there are no gradients
  int64_t taller = 0;  // by so much are images of each rank than those of the one before
};

std::string joined_sizes(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "-") + std::to_string(size);
  return text;
}

at::Tensor drawn(Stream& stream, const Sizes& shape, double mean, double deviation) {
  at::Tensor t = at::empty(shape, at::kDouble);
  double* values = t.mutable_data_ptr<double>();
  std::generate(values, values + t.numel(), [&] { return mean + deviation * stream.normal(); });
  return t;
}

at::Tensor rounded(const at::Tensor& t, at::ScalarType dtype) {
  return t.to(dtype).to(at::kDouble);
}

at::Tensor drawn_input(Stream& stream, const Shape& shape, const Sizes& sizes, size_t rank) {
  at::Tensor x = drawn(stream, sizes, shape.mean + shape.apart * static_cast<double>(rank), shape.deviation);
  for (int64_t c = 0; shape.apart != 0 && c < sizes[1]; ++c)
    x.select(1, c).add_(0.25 * static_cast<double>(c % 8));
  if (shape.special && rank + 1 == shape.rows.size()) {
    at::Tensor value = x.select(1, 1);
    while (value.dim() > 0) value = value[0];
    value.fill_(*shape.special);
  }
  return x;
}

LayerStep drawn_pass(Stream& stream, const Shape& shape, at::ScalarType dtype, Mode mode) {
  LayerStep step;
  step.mode = mode;
  for (size_t r = 0; r < shape.rows.size(); ++r) {
    Sizes sizes{shape.rows[r]};
    sizes.insert(sizes.end(), shape.sample.begin(), shape.sample.end());
    if (sizes.size() > 2) sizes[2] += shape.taller * static_cast<int64_t>(r);
    step.inputs.push_back(rounded(drawn_input(stream, shape, sizes, r), dtype));
    if (!shape.special) step.gradients.push_back(rounded(drawn(stream, sizes, 0.2, 1), dtype));
  }
  return step;
}

VectorCase made(const Shape& shape, at::ScalarType dtype) {
  VectorCase c;
  c.name = shape.name + "/" + dtype_name(dtype);
  c.catches = shape.catches;
  c.ranks_per_group = shape.group == 0 ? shape.rows.size() : shape.group;
  c.backward_after_all = shape.backward_after_all;
  c.may_refuse = shape.may_refuse;

  LayerCase& layer = c.layer_case;
  Json strategy{{"name", "sync"}, {"group_size", c.ranks_per_group}};
  strategy.update(shape.options);
  layer.strategy = resolved_strategy(strategy);
  layer.dtype = dtype;
  layer.memory_format = shape.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  Stream stream(0, "vectors/" + c.name);
  const Sizes channels{shape.sample.front()};
  const at::ScalarType held = statistics_type(dtype);
  if (layer.strategy.at("affine").get<bool>()) {
    layer.weight = rounded(drawn(stream, channels, 1, 0.3), held);
    layer.bias = rounded(drawn(stream, channels, 0, 0.5), held);
  }
  layer.running_mean = rounded(drawn(stream, channels, 0, 1), held);
  layer.running_var = rounded(drawn(stream, channels, 0, 1).square() + 0.5, held);
  for (const Mode mode : shape.modes) layer.steps.push_back(drawn_pass(stream, shape, dtype, mode));
  return c;
}

class Table {
 public:
  void add(Shape shape, const Dtypes& dtypes) {
    shape.name += "/" + joined_sizes(shape.rows) + "/" + layout(shape);
    for (const at::ScalarType dtype : dtypes) cases_.push_back(made(shape, dtype));
  }
  std::vector<VectorCase> take() { return std::move(cases_); }

 private:
  static std::string layout(const Shape& shape) {
    static const char* kNames[] = {"", "nc", "ncl", "nchw", "ncdhw"};
    static const char* kLast[] = {"", "", "", "nhwc", "ndhwc"};
    return (shape.channels_last ? kLast : kNames)[shape.sample.size()];
  }

  std::vector<VectorCase> cases_;
};

void add_sizes(Table& table) {
  const std::string even =
      "Statistics of every rank by itself, or of one channel for another, in any number of "
      "dimensions.";
  for (const Sizes& sample : {kVector, kSeries, kImage, kVolume}) {
    table.add({.name = "even", .catches = even, .rows = {6}, .sample = sample}, kAll);
    table.add({.name = "even", .catches = even, .rows = {4, 4}, .sample = sample}, kAll);
    table.add({.name = "even", .catches = even, .rows = {3, 3, 3, 3}, .sample = sample}, kWide);
  }
  table.add({.name = "even", .catches = even, .rows = Sizes(8, 2), .sample = kImage}, kWide);
  const std::string uneven =
      "Moments or backward sums averaged over the ranks in place of being weighted by how "
      "many values each has.";
  for (const Sizes& rows : {Sizes{5, 1}, Sizes{1, 7, 2, 4}})
    for (const Sizes& sample : {kVector, kImage})
      table.add({.name = "uneven", .catches = uneven, .rows = rows, .sample = sample}, kAll);
  table.add({.name = "uneven", .catches = uneven, .rows = {3, 1, 4, 2, 6, 5, 3, 5}, .sample = kImage}, kWide);
  table.add({.name = "image_sizes",
             .catches = "Counts taken from the number of samples where ranks have images of different sizes.",
             .rows = {2, 3},
             .sample = kImage,
             .taller = 3},
            kAll);
  const std::string empty =
      "A rank without samples that adds NaN, counts as a rank in a mean, leaves an exchange "
      "or gets no gradient.";
  for (const Sizes& rows : {Sizes{0, 6}, Sizes{6, 0}, Sizes{0, 5, 0, 3}, Sizes{0, 0, 6, 0}})
    for (const Sizes& sample : {kVector, kImage})
      table.add({.name = "empty_ranks", .catches = empty, .rows = rows, .sample = sample}, kWide);
  table.add(
      {.name = "all_empty",
       .catches = "Running statistics that become NaN where no rank has a sample: they stay, or the call is "
                  "refused.",
       .rows = {0, 0},
       .sample = kImage,
       .may_refuse = true},
      kWide);
  const std::string one =
      "One value per channel on a rank taken for too little, though the ranks together have "
      "several; the divisor N - 1 taken from the rank.";
  for (const Sizes& rows : {Sizes{1, 1, 1}, Sizes{1, 0, 1, 1}})
    for (const Sizes& sample : {kVector, Sizes{3, 1, 1}})
      table.add({.name = "one_value", .catches = one, .rows = rows, .sample = sample}, kWide);
}

void add_magnitudes(Table& table) {
  const std::string mean =
      "E[x^2] - E[x]^2 in the input's precision, which loses (mean / deviation)^2 roundings "
      "far from zero.";
  const auto far = [&](double m, const Dtypes& dtypes) {
    for (const Sizes& rows : {Sizes{6}, Sizes{3, 5}}) {
      table.add({.name = "huge_mean/" + std::to_string(static_cast<int64_t>(m)),
                 .catches = mean,
                 .rows = rows,
                 .sample = kImage,
                 .mean = m,
                 .deviation = 1},
                dtypes);
    }
  };
  far(1e6, {at::kDouble});
  far(1e8, {at::kDouble});
  far(3e3, {at::kFloat});
  far(1e4, {at::kFloat});
  for (const Sizes& rows : {Sizes{4, 4}, Sizes{2, 6}}) {
    table.add({.name = "ranks_apart",
               .catches = "The mean of the ranks' variances taken for the variance, which lacks the spread "
                          "between their means.",
               .rows = rows,
               .sample = kImage,
               .apart = 50,
               .deviation = 1},
              kWide);
  }
  const std::string tiny =
      "eps added to the deviation in place of the variance, or a variance clamped from below.";
  for (const double deviation : {1e-3, 1e-5}) {
    for (const Sizes& rows : {Sizes{6}, Sizes{3, 5}}) {
      table.add({.name = deviation == 1e-3 ? "tiny_variance/1e-6" : "tiny_variance/1e-10",
                 .catches = tiny,
                 .rows = rows,
                 .sample = kImage,
                 .mean = 0,
                 .apart = 0,
                 .deviation = deviation},
                kWide);
    }
  }
  table.add({.name = "tiny_eps",
             .catches = tiny,
             .rows = {3, 5},
             .sample = kImage,
             .mean = 0,
             .apart = 0,
             .deviation = 1e-4,
             .options = {{"eps", 1e-12}}},
            kWide);
  for (const Sizes& rows : {Sizes{6}, Sizes{3, 5}}) {
    table.add({.name = "constant",
               .catches = "A variance of 0 that becomes negative or divides: the output is the bias.",
               .rows = rows,
               .sample = kImage,
               .mean = 3,
               .apart = 0,
               .deviation = 0},
              kAll);
  }
  table.add({.name = "large_eps",
             .catches = "eps that is not the one asked for.",
             .rows = {3, 5},
             .sample = kImage,
             .options = {{"eps", 0.5}}},
            kAll);
}

void add_half(Table& table) {
  table.add({.name = "half_mean",
             .catches = "Sums of half-precision values kept in half precision: float16 ends at 65504.",
             .rows = {3, 5},
             .sample = {3, 20, 30},
             .mean = 60,
             .deviation = 4},
            {at::kHalf});
  table.add({.name = "half_mean",
             .catches = "Sums of half-precision values kept in half precision: bfloat16 has 8 bits.",
             .rows = {3, 5},
             .sample = {3, 20, 30},
             .mean = 8},
            {at::kBFloat16});
  table.add(
      {.name = "half_deviation",
       .catches = "Squares or variances kept in half precision: beyond 255 the variance exceeds float16.",
       .rows = {3, 5},
       .sample = kImage,
       .deviation = 1000},
      kNarrow);
  table.add({.name = "half_count",
             .catches = "Counts kept in half precision, which rounds 259 (bfloat16) and 2051 (float16).",
             .rows = {1, 1},
             .sample = {2, 7, 37},
             .apart = 4,
             .taller = 36},
            {at::kBFloat16});
  table.add({.name = "half_count",
             .catches = "Counts kept in half precision, which rounds 259 (bfloat16) and 2051 (float16).",
             .rows = {1, 1},
             .sample = {2, 7, 293},
             .apart = 4,
             .taller = 12},
            {at::kHalf});
}

void add_layouts(Table& table) {
  const std::string odd =
      "Kernels made for channel counts that 4, 8 or 32 divide, or for at most so many channels.";
  for (const int64_t channels : {1, 5, 7, 17, 33, 65, 129}) {
    const Shape shape{.name = "channels_" + std::to_string(channels),
                      .catches = odd,
                      .rows = {2, 1},
                      .sample = {channels, 3, 3}};
    table.add(shape, {at::kFloat});
    Shape last = shape;
    last.channels_last = true;
    table.add(last, {at::kFloat, at::kBFloat16});
  }
  const std::string last = "channels_last inputs or gradients read as if they were contiguous.";
  for (const Sizes& sample : {kImage, kVolume}) {
    table.add(
        {.name = "channels_last", .catches = last, .rows = {3, 5}, .sample = sample, .channels_last = true},
        kAll);
  }
  table.add({.name = "channels_last_1x1",
             .catches = "Strides that say both layouts at once, where images have one position.",
             .rows = {3, 5},
             .sample = {3, 1, 1},
             .channels_last = true},
            kWide);
}

void add_groups(Table& table) {
  const std::string groups = "A group of ranks that is ignored: statistics over all ranks, or over none.";
  table.add({.name = "groups_of_2", .catches = groups, .rows = {3, 3, 3, 3}, .sample = kImage, .group = 2},
            kWide);
  table.add({.name = "groups_of_2", .catches = groups, .rows = {3, 1, 0, 4}, .sample = kImage, .group = 2},
            kWide);
  table.add(
      {.name = "groups_of_3", .catches = groups, .rows = {1, 2, 3, 3, 2, 1}, .sample = kImage, .group = 3},
      kWide);
  table.add({.name = "groups_of_1",
             .catches = "Plain batch normalisation of every rank by itself that exchanges nevertheless.",
             .rows = {4, 2},
             .sample = kImage,
             .group = 1},
            kAll);
}

void add_steps(Table& table) {
  const std::vector<Mode> steps{kTrain, kTrain, kTrain, kEval};
  for (const Sizes& rows : {Sizes{6}, Sizes{3, 5}}) {
    table.add({.name = "momentum_null",
               .catches = "A cumulative average whose k-th update does not weigh 1/k, or that counts ranks.",
               .rows = rows,
               .sample = kImage,
               .options = {{"momentum", nullptr}},
               .modes = steps},
              kWide);
    table.add(
        {.name = "steps",
         .catches = "Running statistics that forget or are not used in evaluation, or a biased variance in "
                    "them.",
         .rows = rows,
         .sample = kImage,
         .modes = steps},
        kAll);
    table.add(
        {.name = "two_forwards",
         .catches = "What the backward pass needs kept in the layer, so that a second forward pass before it "
                    "overwrites it.",
         .rows = rows,
         .sample = kImage,
         .modes = {kTrain, kTrain},
         .backward_after_all = true},
        kAll);
  }
  for (const double momentum : {1.0, 0.3}) {
    table.add({.name = momentum == 1 ? "momentum_1" : "momentum_0.3",
               .catches = "A momentum that is the weight of the old value, or fixed.",
               .rows = {3, 5},
               .sample = kImage,
               .options = {{"momentum", momentum}},
               .modes = {kTrain, kTrain}},
              kWide);
  }
  table.add(
      {.name = "evaluation",
       .catches = "Evaluation that normalises by the batch, changes the running statistics, or passes a "
                  "gradient through them.",
       .rows = {3, 5},
       .sample = kImage,
       .modes = {kEval}},
      kAll);
  table.add({.name = "no_affine",
             .catches = "Weight and bias that are needed though there are none.",
             .rows = {3, 5},
             .sample = kImage,
             .options = {{"affine", false}}},
            kAll);
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : {std::pair{"inf", kInf}, std::pair{"nan", kNan}}) {
    table.add(
        {.name = name,
         .catches = "A value of one rank that is not finite and stays unnoticed on the others, or spoils "
                    "other channels.",
         .rows = {3, 5},
         .sample = kImage,
         .special = value},
        kAll);
  }
}

}  // namespace

std::vector<VectorCase> vector_cases() {
  Table table;
  add_sizes(table);
  add_magnitudes(table);
  add_half(table);
  add_layouts(table);
  add_groups(table);
  add_steps(table);
  return table.take();
}

}  // namespace bnlab
