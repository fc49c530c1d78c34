// A call of an operator of ATen on simulated devices, done by the CPU's kernel on CPU tensors that lie over
// the same memory. Arguments are kept as places, so that the call can be done later, and again at each
// replay of a graph.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/simgpu/simgpu.hpp"

namespace simgpu {

// While the CPU's kernels run, nothing is recorded for gradients or cast. Their threads are left as they
// are, since oneDNN sizes its memory by their number: bits are compared with one thread.
struct KernelsOnly {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::NoGradGuard no_grad;
};

// Where a tensor of a device lies.
struct Place {
  void* data = nullptr;  // null without elements
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;
  bool wrapped = false;  // a number, for LibTorch's rules of type promotion

  explicit Place(const at::Tensor& tensor);
  at::Tensor view() const;   // a CPU tensor over the same memory
  at::Tensor blank() const;  // a CPU tensor of that form in memory of its own, all zero
  void describe(std::ostream& out) const;
  // Adds the stretches of memory that it is made of.
  void add_to(std::vector<Access>& accesses, bool writes) const;
};

// What a new tensor has to be.
struct Form {
  bool defined = true;
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;
};

// What a call returns.
struct Result {
  enum class Kind { argument, tensor, tensors, other } kind;
  size_t argument = 0;  // which one
  std::vector<Form> forms;
};
struct Results {
  std::vector<Result> all;
  std::map<size_t, Form> outs;  // of out arguments
  bool has_values = false;      // something that is not a tensor, for which the host has to wait
};
Results describe(const c10::FunctionSchema& schema, const torch::jit::Stack& returned);

// Copies what the CPU's kernel returned to the places of the new tensors, in turn.
void store(const Results& results, const torch::jit::Stack& returned, const std::vector<Place>& places);

class Call {
 public:
  explicit Call(c10::OperatorHandle op) : op_(std::move(op)) {}

  // The next argument. Where the call is `deferred`, tensors of the host are copied.
  void add(const c10::IValue& value, bool deferred);
  void set_out(size_t argument, const at::Tensor& tensor) { arguments_[argument].parts[0] = Place(tensor); }

  // Runs the CPU's kernel on the places, or on blank tensors of the same form.
  torch::jit::Stack run(bool blank = false) const;
  // Equal for calls whose results have the same form.
  std::string key() const;
  bool indexes_by_mask() const;
  std::vector<Access> accesses() const;  // to its arguments

 private:
  using Part = std::variant<std::monostate, Place, at::Tensor>;  // undefined, of a device, of the host
  struct Argument {
    enum class Kind { other, tensor, tensors, optional_tensors } kind = Kind::other;
    c10::IValue value;  // of kind other
    std::vector<Part> parts;
  };
  at::Tensor made(const Part& part, bool is_out, bool blank) const;

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
};

}  // namespace simgpu
