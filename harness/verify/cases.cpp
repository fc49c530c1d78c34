#include "harness/verify/cases.hpp"

#include <torch/types.h>

#include <cmath>
#include <limits>
#include <optional>

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;

const std::vector<Mode> kSteps{Mode::train,          Mode::train,          Mode::train,
                               Mode::evaluate_saved, Mode::evaluate_batch, Mode::train};
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
  for (const auto& [group, sizes] : towers) {
    for (const Sizes& sample : samples) {
      rows.push_back({group, {.towers = sizes, .sample = sample}});
    }
  }
  const std::vector<std::pair<const char*, at::ScalarType>> dtypes{{"float64", at::kDouble},
                                                                   {"float32", at::kFloat},
                                                                   {"half precision", at::kBFloat16},
                                                                   {"half precision", at::kHalf}};
  for (const auto& [group, dtype] : dtypes) {
    for (const Sizes& sample : samples) {
      CaseShape shape{.towers = kUneven, .sample = sample, .dtype = dtype};
      if (dtype != at::kDouble) {
        rows.push_back({group, shape});
      }
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
    rows.push_back({"NaN", {.towers = Sizes(4, 6), .sample = kImage, .dtype = dtype}, 1, kNan});
  }
  for (const Sizes& sizes : {Sizes(4, 6), kUneven}) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    rows.push_back({"merged once", {.towers = sizes, .sample = kImage}, 1, std::nullopt, true});
    rows.push_back({"merged once", {.towers = sizes, .sample = kImage}, 1, kInf, true});
  }
  // Here E[x2] - E[x]^2 exceeds the common bounds: it is off by 1e-16 (m / s)^2 = 2e-11.
  rows.push_back({"large mean", {.towers = kUneven, .sample = kImage, .mean = 1000}});
  return rows;
}

// In the second step a tower has no gradient. Where a value is not finite there are no gradients at all,
// since what it does to them depends on the order of the sums.
void put_special_values(LayerCase& c, const Row& row) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    c.steps[s].merges = !row.merges_once || (c.steps[s].mode != Mode::train) || s + 1 == c.steps.size();
  }
  if (!row.special) {
    c.steps[1].gradients[0] = at::Tensor();
    return;
  }
  c.steps[1].inputs[1].select(1, 3).select(0, 0).fill_(*row.special);
  for (LayerStep& step : c.steps) {
    step.gradients.clear();
  }
}

std::string text_of(const Row& row) {
  const auto listed = [](std::string first, const Sizes& sizes) {
    for (const int64_t size : sizes) {
      first += (first.empty() ? "" : ", ") + std::to_string(size);
    }
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
         (row.merges_once ? ", merged once" : "");
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kDouble     ? "float64"
         : dtype == at::kFloat    ? "float32"
         : dtype == at::kBFloat16 ? "bfloat16"
                                  : "float16";
}

std::vector<VerifyCase> verify_cases(const Json& strategy) {
  const bool convolves = reference_of(strategy)->convolves();
  std::vector<VerifyCase> cases;
  for (Row& row : table(convolves)) {
    const size_t index = cases.size();
    row.shape.seed = index;
    row.shape.modes = kSteps;
    row.shape.has_state = index % 3 != 0;
    // Far from zero a rounding error can turn the sign of what ReLU sees.
    const bool has_relu = index % 2 == 1 && !convolves && row.shape.mean == 0;
    row.shape.activation = has_relu ? Activation::relu : Activation::none;
    LayerCase made = make_case(strategy, row.shape);
    put_special_values(made, row);
    cases.push_back({row.group, text_of(row), std::move(made), row.magnification});
  }
  return cases;
}

}  // namespace bnlab
