#include "harness/verify/cases.hpp"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "harness/error.hpp"
#include "harness/random.hpp"

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;  // samples of each tower

const std::vector<Sizes> kTowers{{6},          {6, 6},       {8, 4},       {0, 6},
                                 {6, 0},       {0, 0},       {6, 6, 6, 6}, {12, 6, 0, 18},
                                 {3, 1, 4, 2}, {1, 1, 1, 1}, {0, 0, 1, 0}};
const Sizes kUneven{12, 6, 0, 18};
const std::vector<Sizes> kShapes{{8}, {8, 5}, {8, 3, 4}, {8, 2, 3, 2}};  // of a sample
const Sizes kImage{8, 3, 4};

struct Plan {
  Sizes towers, shape;
  at::ScalarType dtype = at::kDouble;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  enum class Values { plain, offset, not_a_number } values = Values::plain;
};

std::vector<Plan> plans(bool convolves) {
  const std::vector<Sizes> shapes = convolves ? std::vector<Sizes>{kImage} : kShapes;
  std::vector<Plan> all;
  for (const Sizes& towers : kTowers) {
    for (const Sizes& shape : shapes) {
      all.push_back({towers, shape});
    }
  }
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Sizes& shape : shapes) {
      if (dtype != at::kDouble) {
        all.push_back({kUneven, shape, dtype});
      }
      if (shape.size() > 2) {  // channels_last has a meaning from four dimensions on
        all.push_back({kUneven, shape, dtype, at::MemoryFormat::ChannelsLast});
      }
    }
  }
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    all.push_back({kUneven, kImage, dtype, at::MemoryFormat::Contiguous, Plan::Values::offset});
    all.push_back({{6}, kImage, dtype, at::MemoryFormat::Contiguous, Plan::Values::offset});
    all.push_back({{6, 6, 6, 6}, kImage, dtype, at::MemoryFormat::Contiguous, Plan::Values::not_a_number});
  }
  return all;
}

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

class Maker {
 public:
  Maker(const Plan& plan, const Json& strategy, size_t index, bool convolves)
      : plan_(plan), stream_(0, "verify", index) {
    case_.strategy = strategy;
    case_.dtype = plan.dtype;
    case_.memory_format = plan.format;
    case_.seed = index;
    case_.activation = index % 2 == 1 && !convolves ? Activation::relu : Activation::none;
    if (convolves) {
      convolution(index);
    }
    for (const bool training : {true, true, true, false, false}) {
      case_.steps.push_back(step(training));
    }
    case_.steps[4].mode = Mode::evaluate_batch;
  }

  LayerCase& result() { return case_; }

  // What the strategy has, and `answer` therefore holds, gets values of its own.
  void give_parameters(const LayerStepAnswer& answer) {
    const int64_t channels = plan_.shape[0];
    if (answer.weight_gradient.defined()) {
      case_.weight = drawn(stream_, {channels}, 0.5, 1);
      case_.bias = drawn(stream_, {channels}, 0, 1);
    }
    if (answer.running_mean.defined()) {
      case_.running_mean = drawn(stream_, answer.running_mean.sizes().vec(), 0, 1);
    }
    if (answer.running_var.defined()) {
      case_.running_var = drawn(stream_, {channels}, 0, 1).square() + 0.5;
    }
  }

  std::string text() const {
    std::string towers, shape = "n";
    for (const int64_t n : plan_.towers) {
      towers += (towers.empty() ? "" : ", ") + std::to_string(n);
    }
    for (const int64_t size : plan_.shape) {
      shape += ", " + std::to_string(size);
    }
    return dtype_name(plan_.dtype) + (plan_.format == at::MemoryFormat::Contiguous ? "" : ", channels_last") +
           ", towers of " + towers + " samples, [" + shape + "]" +
           (case_.activation == Activation::relu ? ", relu" : "") +
           (plan_.values == Plan::Values::offset         ? ", far from zero"
            : plan_.values == Plan::Values::not_a_number ? ", with a NaN"
                                                         : "");
  }

 private:
  // Towers differ in their means, so that the spread between them counts; evaluations have one sample more.
  LayerStep step(bool training) {
    LayerStep step;
    step.mode = training ? Mode::train : Mode::evaluate_saved;
    Sizes shape = plan_.shape, output = plan_.shape;
    if (case_.conv) {
      output[0] = case_.conv->v.size(0);
      for (size_t d = 1; d < 3; ++d) {
        output[d] = (shape[d] + 2 * case_.conv->padding - case_.conv->v.size(2)) / case_.conv->stride + 1;
      }
    }
    shape.insert(shape.begin(), 0);
    output.insert(output.begin(), 0);
    int64_t row = 0;
    for (size_t t = 0; t < plan_.towers.size(); ++t) {
      shape[0] = output[0] = plan_.towers[t] == 0 ? 0 : plan_.towers[t] + (training ? 0 : 1);
      const double mean = plan_.values == Plan::Values::offset ? kOffset : 0.5 * static_cast<double>(t);
      step.inputs.push_back(drawn(stream_, shape, mean, plan_.values == Plan::Values::offset ? 1 : 2));
      if (shape.size() == 2) {
        step.inputs.back() += kApart * checkers(row, shape);
      }
      row += shape[0];
      step.gradients.push_back(drawn(stream_, output, 0, 1));
    }
    special_values(step);
    return step;
  }

  // In the second step a tower has no gradient. A NaN stands in the second step; there are no gradients then,
  // since what it does to them depends on the order of the sums.
  void special_values(LayerStep& step) {
    const bool second = case_.steps.size() == 1;
    if (plan_.values == Plan::Values::not_a_number) {
      step.gradients.clear();
      if (second) {
        step.inputs[1].select(1, 3).select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
      }
    } else if (second) {
      step.gradients[0] = at::Tensor();
    }
  }

  void convolution(size_t index) {
    LayerConv conv;
    conv.v = drawn(stream_, {5, plan_.shape[0], index % 2 == 0 ? 3 : 2, index % 2 == 0 ? 3 : 2}, 0.1, 0.5);
    conv.stride = index % 3 == 0 ? 2 : 1;
    conv.padding = index % 2 == 0 ? 1 : 0;
    if (index % 4 != 0) {
      conv.gain = drawn(stream_, {5}, 1, 0.3);
      conv.bias = drawn(stream_, {5}, 0, 1);
    }
    case_.conv = conv;
  }

  static constexpr double kOffset = 100;
  // Sets of two values, which only [n, C] has, would else be nearly equal by chance and magnify rounding.
  static constexpr double kApart = 20;

  const Plan& plan_;
  Stream stream_;
  LayerCase case_;
};

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kDouble     ? "float64"
         : dtype == at::kFloat    ? "float32"
         : dtype == at::kBFloat16 ? "bfloat16"
                                  : "float16";
}

std::vector<VerifyCase> verify_cases(const Json& strategy, const Reference& reference) {
  std::vector<VerifyCase> cases;
  std::optional<LayerStepAnswer> has;  // of a case that is not refused: which parameters there are
  const std::vector<Plan> all = plans(reference.convolves());
  for (size_t i = 0; i < all.size(); ++i) {
    Maker maker(all[i], strategy, i, reference.convolves());
    VerifyCase next;
    next.text = maker.text();
    if (!has) {
      try {
        has = reference.answer(maker.result()).steps.front();
      } catch (const Error&) {  // to be refused: parameters do not matter
      }
    }
    if (has && i % 3 != 0) {
      maker.give_parameters(*has);
    }
    next.layer_case = maker.result();
    next.magnification = all[i].values == Plan::Values::offset ? 100 : 1;
    cases.push_back(std::move(next));
  }
  return cases;
}

}  // namespace bnlab
