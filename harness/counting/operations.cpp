#include "harness/counting/operations.hpp"

#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "harness/counting/launches.hpp"

namespace bnlab {
namespace {

constexpr double kMovedForAMadeTensor = 4;

double moved_bytes(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    return t.defined() ? static_cast<double>(t.nbytes()) : 0;
  }
  double bytes = 0;
  if (value.isTensorList())
    for (const at::Tensor& t : value.toTensorVector())
      bytes += t.defined() ? static_cast<double>(t.nbytes()) : 0;
  return bytes;
}

template <class Values>
double moved_bytes_of_all(const Values& values) {
  double bytes = 0;
  for (const c10::IValue& value : values) bytes += moved_bytes(value);
  return bytes;
}

// An operation under way. Its inputs can be read when it begins, its outputs when it ends.
struct OpenOperation {
  bool is_product = false;
  bool made_of_others = false;
  double input_bytes = 0;
  double flops = 0, flops_of_an_output = 0;
};

// Of an output of a convolution: a multiplication and an addition for each of the inputs that meet in it.
double flops_of_an_output(const at::Tensor& weight) {
  return 2 * static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
}

OpenOperation opened(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const auto inputs = function.inputs();
  OpenOperation open{.input_bytes = moved_bytes_of_all(inputs)};
  if (name == "aten::convolution") {
    open.flops_of_an_output = flops_of_an_output(inputs[1].toTensor());
  } else if (name == "aten::convolution_backward") {
    const auto mask = inputs[10].toBoolList();
    const double times = (mask[0] ? 1 : 0) + (mask[1] ? 1 : 0);
    open.flops =
        times * static_cast<double>(inputs[0].toTensor().numel()) * flops_of_an_output(inputs[2].toTensor());
  } else if (name == "aten::mm" || name == "aten::bmm") {
    open.flops_of_an_output = 2 * static_cast<double>(inputs[0].toTensor().size(-1));
  } else if (name == "aten::addmm") {
    open.flops_of_an_output = 2 * static_cast<double>(inputs[1].toTensor().size(-1));
  }
  open.is_product = open.flops > 0 || open.flops_of_an_output > 0;
  return open;
}

// While this lives, counts the operations of this thread. Those made of others are counted by these, but for
// convolutions and products, which count as a whole.
class CountingOperations {
 public:
  CountingOperations() {
    under_way().clear();
    counted() = {};
    at::RecordFunctionCallback callback(begins, ends);
    callback.scopes({at::RecordScope::FUNCTION}).needsInputs(true).needsOutputs(true);
    handle_ = at::addThreadLocalCallback(callback);
  }
  ~CountingOperations() { at::removeCallback(handle_); }
  static Operations& counted() {
    thread_local Operations counted;
    return counted;
  }

 private:
  static std::vector<OpenOperation>& under_way() {
    thread_local std::vector<OpenOperation> operations;
    return operations;
  }
  static std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
    under_way().push_back(opened(function));
    return nullptr;
  }
  static void ends(const at::RecordFunction& function, at::ObserverContext*) {
    const OpenOperation ended = under_way().back();
    under_way().pop_back();
    Operations& all = counted();
    const double output_bytes = moved_bytes_of_all(function.outputs());
    const bool is_inside_a_product = std::ranges::any_of(under_way(), &OpenOperation::is_product);
    if (is_inside_a_product) return;
    if (ended.is_product) {
      const double outputs = static_cast<double>(
          function.outputs()[0].toTensor().defined() ? function.outputs()[0].toTensor().numel() : 0);
      all.flops += ended.flops + ended.flops_of_an_output * outputs;
      all.matrix_bytes += ended.input_bytes + output_bytes;
    } else if (std::string_view(function.name()).starts_with("aten::empty") && under_way().empty()) {
      all.other_bytes += kMovedForAMadeTensor * output_bytes;
    } else if (!launches_nothing(function) && !ended.made_of_others) {
      all.other_bytes += ended.input_bytes + output_bytes;
    }
    if (!under_way().empty() && !launches_nothing(function)) under_way().back().made_of_others = true;
  }

  at::CallbackHandle handle_;
};

}  // namespace

Operations operations_of(const std::function<void()>& work) {
  const CountingOperations counting;
  work();
  return CountingOperations::counted();
}

}  // namespace bnlab
