#include "tests/simgpu/call.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

namespace simgpu {
namespace {

using torch::jit::Stack;

at::Tensor marked(at::Tensor tensor, bool wrapped) {
  if (wrapped) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Generator cpu_generator(const at::Generator& of) {
  static auto& all = *new std::map<int, at::Generator>;
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  const int device = of.device().index();
  auto found = all.find(device);
  if (found == all.end())
    found = all.emplace(device, at::detail::createCPUGenerator(of.current_seed())).first;
  return found->second;
}

Form form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {false, {}, {}, at::kFloat};
  return {true, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

// The argument that an operator changes and returns.
std::optional<size_t> argument_of(const c10::FunctionSchema& schema, const c10::Argument& returned) {
  const auto* alias = returned.alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* of = schema.arguments()[i].alias_info();
    if (of != nullptr && of->isWrite() && of->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

void store(const at::Tensor& from, const Place& to) {
  if (to.data != nullptr) {
    at::Tensor target = to.view();
    at::native::copy_(target, from, false);
  }
}

}  // namespace

Place::Place(const at::Tensor& tensor)
    : data(tensor.numel() > 0 ? tensor.data_ptr() : nullptr),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      type(tensor.scalar_type()),
      wrapped(tensor.unsafeGetTensorImpl()->is_wrapped_number()) {}

at::Tensor Place::view() const {
  const auto options = at::TensorOptions().dtype(type);
  return marked(data == nullptr ? at::empty_strided(sizes, strides, options)
                                : at::from_blob(data, sizes, strides, options),
                wrapped);
}

at::Tensor Place::blank() const {
  return marked(at::empty_strided(sizes, strides, at::TensorOptions().dtype(type)).zero_(), wrapped);
}

void Place::describe(std::ostream& out) const {
  out << static_cast<int>(type) << at::IntArrayRef(sizes) << at::IntArrayRef(strides) << (wrapped ? "w" : "");
}

void Place::add_to(std::vector<Access>& accesses, bool writes) const {
  if (data == nullptr) return;
  const auto element = static_cast<int64_t>(c10::elementSize(type));
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && strides[d] > 0) dims.emplace_back(strides[d], sizes[d]);
  std::ranges::sort(dims);
  int64_t stretch = 1;  // elements that lie together
  size_t inner = 0;
  for (; inner < dims.size() && dims[inner].first <= stretch; ++inner)
    stretch += (dims[inner].second - 1) * dims[inner].first;
  std::vector<int64_t> begins{0};
  for (size_t d = inner; d < dims.size(); ++d) {
    const size_t before = begins.size();
    for (int64_t i = 1; i < dims[d].second; ++i)
      for (size_t b = 0; b < before; ++b) begins.push_back(begins[b] + i * dims[d].first);
  }
  for (int64_t begin : begins) {
    accesses.push_back(
        {static_cast<const char*>(data) + begin * element, static_cast<size_t>(stretch * element), writes});
  }
}

Results describe(const c10::FunctionSchema& schema, const Stack& returned) {
  Results results;
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    const c10::IValue& value = returned.at(r);
    if (const auto argument = argument_of(schema, schema.returns()[r])) {
      results.all.push_back({Result::Kind::argument, *argument, {}});
      if (schema.arguments()[*argument].is_out() && value.isTensor())
        results.outs[*argument] = form_of(value.toTensor());
    } else if (value.isTensor()) {
      results.all.push_back({Result::Kind::tensor, 0, {form_of(value.toTensor())}});
    } else if (value.isTensorList()) {
      Result list{Result::Kind::tensors, 0, {}};
      for (const at::Tensor& tensor : value.toTensorVector()) list.forms.push_back(form_of(tensor));
      results.all.push_back(std::move(list));
    } else {
      results.all.push_back({Result::Kind::other, 0, {}});
      results.has_values = true;
    }
  }
  return results;
}

void store(const Results& results, const Stack& returned, const std::vector<Place>& places) {
  size_t next = 0;
  for (size_t r = 0; r < results.all.size(); ++r) {
    const Result& result = results.all[r];
    if (result.kind == Result::Kind::tensor && result.forms[0].defined) {
      store(returned[r].toTensor(), places[next++]);
    } else if (result.kind == Result::Kind::tensors) {
      const auto list = returned[r].toTensorVector();
      for (size_t i = 0; i < list.size(); ++i)
        if (result.forms[i].defined) store(list[i], places[next++]);
    }
  }
}

void Call::add(const c10::IValue& value, bool deferred) {
  Argument argument;
  const auto add_part = [&](const at::Tensor& tensor) {
    if (!tensor.defined())
      argument.parts.emplace_back();
    else if (tensor.is_cuda())
      argument.parts.emplace_back(Place(tensor));
    else if (deferred && tensor.device().is_cpu())
      argument.parts.emplace_back(marked(tensor.clone(), tensor.unsafeGetTensorImpl()->is_wrapped_number()));
    else
      argument.parts.emplace_back(tensor);
  };
  if (value.isTensor()) {
    argument.kind = Argument::Kind::tensor;
    add_part(value.toTensor());
  } else if (value.isTensorList()) {
    argument.kind = Argument::Kind::tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) add_part(tensor);
  } else if (value.isOptionalTensorList()) {
    argument.kind = Argument::Kind::optional_tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      add_part(tensor.value_or(at::Tensor()));
  } else if (value.isDevice() && value.toDevice().is_cuda()) {
    argument.value = at::Device(at::kCPU);
  } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
    argument.value = cpu_generator(value.toGenerator());
  } else {
    argument.value = value;
  }
  arguments_.push_back(std::move(argument));
}

at::Tensor Call::made(const Part& part, bool is_out, bool blank) const {
  if (const auto* place = std::get_if<Place>(&part)) {
    if (!blank) return place->view();
    return is_out ? at::empty({0}, at::TensorOptions().dtype(place->type)) : place->blank();
  }
  const auto* tensor = std::get_if<at::Tensor>(&part);
  return tensor != nullptr ? *tensor : at::Tensor();
}

Stack Call::run(bool blank) const {
  Stack stack;
  const auto& formal = op_.schema().arguments();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    const auto tensor_of = [&](const Part& part) { return made(part, formal[i].is_out(), blank); };
    switch (argument.kind) {
      case Argument::Kind::other:
        stack.push_back(argument.value);
        break;
      case Argument::Kind::tensor:
        if (std::holds_alternative<std::monostate>(argument.parts[0]) &&
            formal[i].type()->kind() == c10::TypeKind::OptionalType) {
          stack.emplace_back();
        } else {
          stack.emplace_back(tensor_of(argument.parts[0]));
        }
        break;
      case Argument::Kind::tensors: {
        std::vector<at::Tensor> list;
        for (const Part& part : argument.parts) list.push_back(tensor_of(part));
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::optional_tensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const Part& part : argument.parts) {
          const bool none = std::holds_alternative<std::monostate>(part);
          list.push_back(none ? std::nullopt : std::optional(tensor_of(part)));
        }
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  // A kernel that returns several out arguments returns references to them, and LibTorch takes the arguments
  // off the stack before it follows these: they have to have another owner.
  const Stack arguments = stack;
  op_.callBoxed(stack);
  return stack;
}

std::string Call::key() const {
  std::ostringstream out;
  out << op_.schema().name() << '.' << op_.schema().overload_name();
  for (const Argument& argument : arguments_) {
    out << '|';
    if (argument.kind == Argument::Kind::other && !argument.value.isGenerator())
      out << argument.value.tagKind() << ':' << argument.value;
    for (const Part& part : argument.parts) {
      out << static_cast<int>(part.index());
      if (const auto* place = std::get_if<Place>(&part))
        place->describe(out);
      else if (const auto* tensor = std::get_if<at::Tensor>(&part))
        Place(*tensor).describe(out);
      out << '&';
    }
  }
  return out.str();
}

std::vector<Access> Call::accesses() const {
  std::vector<Access> all;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto* alias = op_.schema().arguments()[i].alias_info();
    const bool writes =
        alias != nullptr &&
        (alias->isWrite() || std::ranges::any_of(alias->containedTypes(), &c10::AliasInfo::isWrite));
    for (const Part& part : arguments_[i].parts)
      if (const auto* place = std::get_if<Place>(&part)) place->add_to(all, writes);
  }
  return all;
}

bool Call::indexes_by_mask() const {
  for (const Argument& argument : arguments_) {
    for (const Part& part : argument.parts) {
      const auto* place = std::get_if<Place>(&part);
      if (argument.kind == Argument::Kind::optional_tensors && place != nullptr &&
          (place->type == at::kBool || place->type == at::kByte)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace simgpu
