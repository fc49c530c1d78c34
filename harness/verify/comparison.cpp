#include "harness/verify/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "harness/support/error.hpp"

namespace bnlab {

// A few hundred roundings of 1e-16 and 6e-8.
double statistics_bound(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : 1e-5;
}

// The narrow ones are computed in float32 and rounded once at the end, by up to 2^-8 (bfloat16) and 2^-11
// (float16) of the value.
double values_bound(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 4e-3 : dtype == at::kHalf ? 6e-4 : statistics_bound(dtype);
}

namespace {

// A convolution in a narrow dtype rounds its result, and then rounds again where the mean is subtracted and
// where the bias is added, each time by that much of values larger than the output; its parameters' gradients
// and the mean of its results carry these roundings too.
constexpr double kConvolutionRoundings = 8;

// A tensor's values in row-major order.
class Values {
 public:
  explicit Values(const at::Tensor& t)
      : dense_(t.to(at::kDouble).contiguous()), values_(dense_.const_data_ptr<double>()) {}
  size_t size() const { return static_cast<size_t>(dense_.numel()); }
  double operator[](size_t i) const { return values_[i]; }

 private:
  at::Tensor dense_;
  const double* values_;
};

double largest(const at::Tensor& t) {  // finite values alone; 0 for none
  double found = 0;
  if (t.defined()) {
    const Values values(t);
    for (size_t i = 0; i < values.size(); ++i)
      found = std::isfinite(values[i]) ? std::max(found, std::abs(values[i])) : found;
  }
  return found;
}

struct Difference {
  double largest = 0;  // infinite where only one of them is a number
  size_t where = 0;
};

Difference between(const Values& a, const Values& b) {
  Difference found;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::isfinite(a[i]) != std::isfinite(b[i]) ? std::numeric_limits<double>::infinity()
                         : std::isfinite(a[i])                      ? std::abs(a[i] - b[i])
                                                                    : 0;
    found = error > found.largest ? Difference{error, i} : found;
  }
  return found;
}

class Comparer {
 public:
  Comparer(const LayerCase& c, double magnification)
      : dtype_(c.dtype),
        held_(statistics_type(c.dtype)),
        magnification_(magnification),
        narrow_bound_(values_bound(c.dtype)),
        wide_bound_(statistics_bound(c.dtype)) {
    if (c.conv && c.dtype != at::kDouble && c.dtype != at::kFloat) {
      narrow_bound_ *= kConvolutionRoundings;
      wide_bound_ = narrow_bound_;
    }
  }

  void step(size_t index, const LayerCase& c, const LayerStepAnswer& expected, const LayerStepAnswer& got) {
    where_ = "step " + std::to_string(index) + ", ";
    towers("output", expected.outputs, got.outputs, 0);
    // dx is a difference of terms as large as dy: in a set of two hardly anything remains of them.
    double dy = 0;
    for (const at::Tensor& given : c.steps[index].gradients) dy = std::max(dy, largest(given));
    towers("grad_input", expected.input_gradients, got.input_gradients, dy);
    parameter("grad_weight", expected.weight_gradient, got.weight_gradient);
    parameter("grad_bias", expected.bias_gradient, got.bias_gradient);
    parameter("running_mean", expected.running_mean, got.running_mean);
    parameter("running_var", expected.running_var, got.running_var);
    parameter("grad_v", expected.v_gradient, got.v_gradient);
    parameter("grad_gain", expected.gain_gradient, got.gain_gradient);
    for (const auto* side : {&expected, &got}) {
      for (const auto& [name, gradient] : side->parameter_gradients) {
        // One number of a whole site is a sum in which terms as large as dy cancel.
        parameter("grad_" + name, named(expected, name), named(got, name), dy);
      }
    }
    parameter("gain", expected.gain, got.gain);
    parameter("bias", expected.bias, got.bias);
    if (expected.permutation != got.permutation) fail("permutation: not the expected one");
    if (c.steps[index].mode == Mode::evaluate_saved && !got.collectives.empty())
      fail("an evaluation exchanges " + std::to_string(got.collectives.size()) + " messages, expected none");
    for (const at::Tensor& output : got.outputs) check_format(c, "output", output);
    for (const at::Tensor& gradient : got.input_gradients) check_format(c, "grad_input", gradient);
  }

  // Evaluations and steps without a sample leave the saved pair as it was, to the bit.
  void pair_stays(const LayerStep& step, const LayerStepAnswer& got, const at::Tensor& mean,
                  const at::Tensor& var) {
    const bool is_empty =
        std::ranges::all_of(step.inputs, [](const at::Tensor& x) { return x.size(0) == 0; });
    const auto changes = [](const at::Tensor& before, const at::Tensor& after) {
      return before.defined() && after.defined() && relative_error(before.to(after.scalar_type()), after) > 0;
    };
    if ((step.mode != Mode::train || is_empty) &&
        (changes(mean, got.running_mean) || changes(var, got.running_var))) {
      fail(std::string(is_empty ? "a step without samples" : "an evaluation") +
           " changes the running statistics");
    }
  }

  const AnswerComparison& result() const { return result_; }

 private:
  static at::Tensor named(const LayerStepAnswer& answer, const std::string& name) {
    const auto found = answer.parameter_gradients.find(name);
    return found == answer.parameter_gradients.end() ? at::Tensor() : found->second;
  }

  void fail(const std::string& what) {
    if (result_.failure.empty()) result_.failure = where_ + what;
  }

  void check_format(const LayerCase& c, const std::string& name, const at::Tensor& t) {
    if (c.conv && c.dtype == at::kDouble) return;  // cuDNN convolves float64 in the contiguous format alone
    if (t.defined() && t.numel() > 0 && !t.is_contiguous(c.format(t.dim())))
      fail(name + ": not in the memory format of the input");
  }

  void towers(const std::string& name, const std::vector<at::Tensor>& expected,
              const std::vector<at::Tensor>& got, double floor) {
    if (expected.size() != got.size()) {
      fail(name + ": expected " + std::to_string(expected.size()) + " towers, got " +
           std::to_string(got.size()));
      return;
    }
    for (const at::Tensor& tower : expected) floor = std::max(floor, largest(tower));
    for (size_t t = 0; t < expected.size(); ++t)
      tensor("tower " + std::to_string(t) + ", " + name, expected[t], got[t], dtype_, narrow_bound_, floor);
  }

  void parameter(const std::string& name, const at::Tensor& expected, const at::Tensor& got,
                 double floor = 0) {
    if (expected.defined() != got.defined())
      fail(name + (expected.defined() ? ": missing" : ": there should be none"));
    else if (expected.defined())
      tensor(name, expected, got, held_, wide_bound_, std::max(floor, largest(expected)));
  }

  // The error is relative to `scale`, the largest value that is expected; where no number is expected, none
  // may come.
  void tensor(const std::string& name, const at::Tensor& expected, const at::Tensor& got,
              at::ScalarType dtype, double bound, double scale) {
    if (!got.defined()) {
      fail(name + ": missing");
      return;
    }
    if (got.sizes() != expected.sizes() || got.scalar_type() != dtype) {
      std::ostringstream text;
      text << name << ": expected " << toString(dtype) << " " << expected.sizes() << ", got "
           << toString(got.scalar_type()) << " " << got.sizes();
      fail(text.str());
      return;
    }
    if (expected.numel() == 0) return;
    const Values e(expected), g(got);
    const Difference found = between(g, e);
    const double relative = found.largest / std::max(scale, 1e-300);
    result_.worst = std::max(result_.worst, relative / magnification_);
    if (relative > bound * magnification_) {
      std::ostringstream text;
      text.precision(12);
      text << name << ", value " << found.where << ": expected " << e[found.where] << ", got "
           << g[found.where];
      text.precision(3);
      text << ": " << relative << " of the largest value, at most " << bound * magnification_
           << " is allowed";
      fail(text.str());
    }
  }

  at::ScalarType dtype_, held_;
  double magnification_, narrow_bound_, wide_bound_;
  std::string where_;
  AnswerComparison result_;
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The message by which sets of one value are refused is the same everywhere, so that all ranks throw alike.
bool is_other_message(const std::string& expected, const std::string& got) {
  return expected.rfind("more than 1 value per channel", 0) == 0 && got != expected;
}

}  // namespace

AnswerComparison compare(const LayerCase& layer_case, const LayerAnswer& expected, const LayerAnswer& answer,
                         double magnification) {
  Comparer comparer(layer_case, magnification);
  if (answer.steps.size() != expected.steps.size()) {
    return {0, "expected " + std::to_string(expected.steps.size()) + " steps, got " +
                   std::to_string(answer.steps.size())};
  }
  for (size_t s = 0; s < expected.steps.size(); ++s) {
    comparer.step(s, layer_case, expected.steps[s], answer.steps[s]);
    comparer.pair_stays(layer_case.steps[s], answer.steps[s],
                        s == 0 ? layer_case.running_mean : answer.steps[s - 1].running_mean,
                        s == 0 ? layer_case.running_var : answer.steps[s - 1].running_var);
  }
  return comparer.result();
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  return between(Values(a), Values(b)).largest / std::max(largest(b), 1e-300);
}

CaseOutcome outcome_of(const std::function<LayerAnswer()>& apply) {
  CaseOutcome outcome;
  try {
    outcome.answer = apply();
  } catch (const Error& error) {
    const bool refused = error.kind() == Error::Kind::refused || error.kind() == Error::Kind::spec;
    (refused ? outcome.refusal : outcome.failure) = error.what();
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

Expectation::Expectation(const VerifyCase& verify_case, const Reference& reference)
    : case_(verify_case),
      expected_(outcome_of([&] { return reference.answer(verify_case.layer_case); })),
      magnification_(verify_case.magnification * reference.conditioning(verify_case.layer_case)) {}

AnswerComparison Expectation::verdict(const std::function<LayerAnswer()>& apply) const {
  if (!expected_.failure.empty()) return {0, "the reference fails: " + first_line(expected_.failure)};
  const CaseOutcome got = outcome_of(apply);
  if (!got.failure.empty()) return {0, "it fails: " + first_line(got.failure)};
  if (is_refusal() && got.refusal.empty())
    return {0, "it answers what is to be refused: " + expected_.refusal};
  if (is_refusal()) {
    return {0, is_other_message(expected_.refusal, got.refusal)
                   ? "it refuses with \"" + got.refusal + "\", expected \"" + expected_.refusal + "\""
                   : ""};
  }
  if (!got.refusal.empty()) return {0, "it refuses: " + got.refusal};
  return compare(case_.layer_case, expected_.answer, got.answer, magnification_);
}

}  // namespace bnlab
