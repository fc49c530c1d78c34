#include "harness/models/exported_graph.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/experiment/strict_json.hpp"
#include "harness/text_file.hpp"

namespace bnlab {
namespace {

using Argument = ExportedGraph::Argument;
using c10::IValue;
using c10::TypeKind;

constexpr int64_t kVersion = 1;                   // of graph.json
constexpr size_t kLargestGraph = size_t{1} << 28;  // bytes
constexpr size_t kMostNodes = 1'000'000;
constexpr size_t kLongestList = 100'000;
constexpr int kDeepestList = 2;  // lists in lists

// Operators that only compute, by their names without the _ of those that change their first argument.
bool may_be_called(const std::string& name) {
  static const std::set<std::string, std::less<>> allowed = {
      // convolutions and products
      "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "linear",
      "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention", "lstm", "gru",
      // norms
      "batch_norm", "group_norm", "layer_norm", "instance_norm", "rms_norm", "linalg_vector_norm", "norm", "normalize",
      // pooling and other sizes
      "max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_unpool2d", "avg_pool1d", "avg_pool2d",
      "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d",
      "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact2d", "upsample_linear1d",
      "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_bicubic2d", "upsample_trilinear3d", "pixel_shuffle",
      "pixel_unshuffle", "channel_shuffle", "grid_sampler", "grid_sampler_2d", "affine_grid_generator", "im2col", "col2im",
      // of each value
      "relu", "relu6", "silu", "gelu", "mish", "elu", "celu", "selu", "leaky_relu", "prelu", "hardswish", "hardsigmoid",
      "hardtanh", "hardshrink", "softplus", "softshrink", "softsign", "threshold", "sigmoid", "log_sigmoid", "tanh", "glu",
      "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "abs", "neg", "sign",
      "sin", "cos", "tan", "atan", "atan2", "erf", "pow", "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide",
      "fmod", "remainder", "lerp", "addcmul", "addcdiv", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where",
      "masked_fill", "floor", "ceil", "round", "trunc", "frac", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
      "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "__and__", "__or__", "isnan",
      "isinf", "isfinite", "nan_to_num", "cumsum", "softmax", "log_softmax",
      // of several values
      "sum", "mean", "prod", "std", "var", "var_mean", "std_mean", "amax", "amin", "max", "min", "any", "all", "argmax",
      "argmin", "logsumexp", "topk", "sort",
      // shapes and copies
      "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose",
      "t", "movedim", "swapaxes", "expand", "expand_as", "broadcast_to", "repeat", "repeat_interleave", "tile", "cat",
      "concat", "stack", "hstack", "vstack", "chunk", "split", "split_with_sizes", "tensor_split", "unbind", "select",
      "slice", "narrow", "index", "index_select", "gather", "take_along_dim", "roll", "flip", "rot90", "diagonal", "tril",
      "triu", "unfold", "pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "meshgrid",
      "contiguous", "clone", "to", "_to_copy", "type_as", "detach", "lift_fresh", "lift_fresh_copy", "alias", "copy",
      "sym_size", "size", "numel", "sym_numel", "embedding", "one_hot",
      // tensors from nothing
      "empty", "empty_like", "new_empty", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full",
      "full_like", "new_full", "arange", "linspace", "scalar_tensor", "eye", "fill", "zero",
      // noise, which bnlab draws
      "dropout", "feature_dropout", "bernoulli", "rand"};
  const std::string::size_type dot = name.find('.');
  std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (allowed.contains(base)) return overload.find("out") == std::string::npos;
  if (!base.ends_with("_")) return false;
  base.pop_back();
  return allowed.contains(base);
}

[[noreturn]] void unusable(const std::string& what) {
  throw Error(Error::Kind::data, what);
}

const std::map<std::string, at::ScalarType>& types() {
  static const std::map<std::string, at::ScalarType> all = {
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},     {"bool", at::kBool}};
  return all;
}

at::ScalarType type_named(const std::string& name) {
  const auto found = types().find(name);
  if (found == types().end()) unusable("a type " + name + " that is not known here");
  return found->second;
}

at::MemoryFormat format_named(const std::string& name) {
  if (name == "contiguous_format") return at::MemoryFormat::Contiguous;
  if (name == "preserve_format") return at::MemoryFormat::Preserve;
  if (name == "channels_last") return at::MemoryFormat::ChannelsLast;
  unusable("a memory format " + name + " that is not known here");
}

// A number where the operator takes a tensor, as in add_.Tensor(x, 1), is one that does not widen the other's
// type; an integer where it takes a floating-point number is one.
IValue fitting(IValue value, TypeKind kind) {
  if (kind == TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  if (kind == TypeKind::TensorType && value.isScalar()) {
    const auto type = value.isDouble() ? at::kDouble : value.isBool() ? at::kBool : at::kLong;
    at::Tensor number = at::scalar_tensor(value.toScalar(), type);
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }
  return value;
}

bool fits(const IValue& value, TypeKind kind) {
  switch (kind) {
    case TypeKind::TensorType:
      return value.isTensor();
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return value.isInt();
    case TypeKind::FloatType:
      return value.isDouble();
    case TypeKind::NumberType:
      return value.isScalar();
    case TypeKind::BoolType:
      return value.isBool();
    case TypeKind::StringType:
      return value.isString();
    case TypeKind::DeviceObjType:
      return value.isDevice();
    default:
      return kind == TypeKind::AnyType;
  }
}

template <class T, class Get>
IValue list_of(const std::vector<IValue>& items, Get get) {
  c10::List<T> list;
  list.reserve(items.size());
  for (const IValue& item : items) list.push_back(get(item));
  return list;
}

// The argument with the values that it reads.
IValue filled(const Argument& argument, const ExportedGraph::Values& values) {
  if (!argument.is_list) {
    if (argument.value < 0) return argument.constant;
    IValue value = fitting(values[static_cast<size_t>(argument.value)], argument.kind);
    if (!fits(value, argument.kind) && !(argument.optional && value.isNone()))
      unusable("value " + std::to_string(argument.value) + " is a " + value.tagKind() +
               ", which the operator does not take there");
    return value;
  }
  std::vector<IValue> items;
  items.reserve(argument.items.size());
  for (const Argument& item : argument.items) items.push_back(filled(item, values));
  switch (argument.kind) {
    case TypeKind::TensorType:
      if (!argument.optional) return list_of<at::Tensor>(items, [](const IValue& i) { return i.toTensor(); });
      return list_of<std::optional<at::Tensor>>(
          items, [](const IValue& i) { return i.isNone() ? std::nullopt : std::optional(i.toTensor()); });
    case TypeKind::FloatType:
      return list_of<double>(items, [](const IValue& i) { return i.toDouble(); });
    case TypeKind::BoolType:
      return list_of<bool>(items, [](const IValue& i) { return i.toBool(); });
    default:
      return list_of<int64_t>(items, [](const IValue& i) { return i.toInt(); });
  }
}

// Reads the arguments of one node.
class ArgumentReader {
 public:
  // before: values that exist so far.
  ArgumentReader(int64_t before, const at::TensorOptions& run) : before_(before), run_(run) {}

  Argument read(const Json& json, c10::TypePtr type, int depth = 0) const {
    const auto optional = type->cast<c10::OptionalType>();
    Argument argument = read_present(json, optional ? optional->getElementType() : type, depth);
    if (optional && !argument.is_list) argument.optional = true;  // of a list its items decide
    return argument;
  }

 private:
  Argument read_present(const Json& json, const c10::TypePtr& type, int depth) const {
    const auto list = type->cast<c10::ListType>();
    Argument argument{.kind = type->kind()};
    if (json.is_null()) return argument;  // checked by whoever knows whether it may be
    if (json.is_object() && json.contains("v")) {
      argument.value = json.at("v").get<int64_t>();
      if (argument.value < 0 || argument.value >= before_)
        unusable("reads value " + shown(json.at("v")) + " of " + std::to_string(before_));
      if (list) argument.kind = TypeKind::AnyType;  // a list that an operator has returned
      return argument;
    }
    if (list || json.is_array()) return read_list(json, list ? list->getElementType() : c10::TypePtr(c10::AnyType::get()), depth);
    argument.constant = fitting(constant(json), argument.kind);
    if (!fits(argument.constant, argument.kind))
      unusable("got " + shown(json) + " where the operator takes " + type->str());
    return argument;
  }

  Argument read_list(const Json& json, const c10::TypePtr& element, int depth) const {
    if (depth == kDeepestList || json.size() > kLongestList) unusable("a list that is too long or too deep");
    Argument argument{.is_list = true};
    const auto optional = element->cast<c10::OptionalType>();
    argument.kind = (optional ? optional->getElementType() : element)->kind();
    argument.optional = optional != nullptr;
    bool constant = true;
    for (const Json& item : json.is_array() ? json : Json::array({json})) {  // int[2] may be one number
      argument.items.push_back(read(item, element, depth + 1));
      const Argument& last = argument.items.back();
      constant = constant && last.value < 0 && !last.is_list;
      if (last.value < 0 && !last.is_list && last.constant.isNone() && !optional) unusable("a list lacks an item");
    }
    if (constant && argument.kind != TypeKind::TensorType) {
      argument.constant = filled(argument, {});
      argument.is_list = false;
      argument.items.clear();
    }
    return argument;
  }

  IValue constant(const Json& json) const {
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return json.get<int64_t>();
    if (json.is_number()) return json.get<double>();
    if (json.is_string()) return json.get<std::string>();
    if (!json.is_object() || json.size() != 1) unusable("an argument " + shown(json));
    const std::string kind = json.begin().key(), text = json.begin().value().get<std::string>();
    if (kind == "device") return run_.device();
    if (kind == "dtype") return static_cast<int64_t>(text == "run" ? c10::typeMetaToScalarType(run_.dtype()) : type_named(text));
    if (kind == "layout") return static_cast<int64_t>(at::kStrided);
    if (kind == "memory_format") return static_cast<int64_t>(format_named(text));
    if (kind == "float") return text == "nan" ? std::nan("") : text == "-inf" ? -HUGE_VAL : HUGE_VAL;
    unusable("an argument " + shown(json));
  }

  int64_t before_;
  const at::TensorOptions& run_;
};

double number(const IValue& value) {
  return value.isInt() ? static_cast<double>(value.toInt()) : value.isBool() ? value.toBool() : value.toDouble();
}

int64_t floor_division(int64_t m, int64_t n) {
  if (n == 0) unusable("a division of sizes by 0");
  if (n == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(m));  // of the lowest number m / n traps
  return m / n - (m % n != 0 && (m < 0) != (n < 0) ? 1 : 0);
}

// A member of what an operator has returned.
IValue member(const IValue& all, int64_t place) {
  const auto size = static_cast<int64_t>(all.isTuple()  ? all.toTupleRef().elements().size()
                                         : all.isList() ? all.toListRef().size()
                                                        : 0);
  if (place < 0) place += size;
  if (place < 0 || place >= size) unusable("member " + std::to_string(place) + " of " + std::to_string(size));
  const auto at = static_cast<size_t>(place);
  return all.isTuple() ? all.toTupleRef().elements()[at] : IValue(all.toListRef()[at]);
}

constexpr const char* kOfOne[] = {"neg", "not", "trunc", "floor", "ceil", "round", "int", "float"};

// Python's arithmetic on sizes; `b` is none for functions of one number.
IValue on_sizes(const std::string& name, const IValue& a, const IValue& b) {
  if (name == "getitem") return member(a, b.toInt());
  const bool whole = a.isInt() && (b.isNone() || b.isInt());
  const int64_t m = whole ? a.toInt() : 0, n = whole && b.isInt() ? b.toInt() : 0;
  const double x = number(a), y = b.isNone() ? 0 : number(b);
  if (name == "add") return whole ? IValue(m + n) : IValue(x + y);
  if (name == "sub") return whole ? IValue(m - n) : IValue(x - y);
  if (name == "mul") return whole ? IValue(m * n) : IValue(x * y);
  if (name == "floordiv") return whole ? IValue(floor_division(m, n)) : IValue(std::floor(x / y));
  if (name == "mod") return whole ? IValue(m - floor_division(m, n) * n) : IValue(x - std::floor(x / y) * y);
  if (name == "truediv") return x / y;
  if (name == "pow") return whole && n >= 0 ? IValue(static_cast<int64_t>(std::llround(std::pow(x, y)))) : IValue(std::pow(x, y));
  if (name == "max") return whole ? IValue(std::max(m, n)) : IValue(std::max(x, y));
  if (name == "min") return whole ? IValue(std::min(m, n)) : IValue(std::min(x, y));
  if (name == "eq") return x == y;
  if (name == "ne") return x != y;
  if (name == "lt") return x < y;
  if (name == "le") return x <= y;
  if (name == "gt") return x > y;
  if (name == "ge") return x >= y;
  if (name == "and") return x != 0 && y != 0;
  if (name == "or") return x != 0 || y != 0;
  if (name == "not") return x == 0;
  if (name == "neg") return whole ? IValue(-m) : IValue(-x);
  if (name == "floor") return static_cast<int64_t>(std::floor(x));
  if (name == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (name == "trunc" || name == "int") return static_cast<int64_t>(std::trunc(x));
  if (name == "round") return static_cast<int64_t>(std::nearbyint(x));  // halves to even, as in Python
  if (name == "float") return x;
  unusable("a function " + name + " that is not known here");
}

// A guard: numbers, {"size": dimension} and functions, the last one behind what they take.
bool holds(const Json& guard, const std::vector<int64_t>& shape) {
  std::vector<IValue> stack;
  const auto pop = [&] {
    if (stack.empty()) unusable("a guard that lacks a number");
    IValue value = stack.back();
    stack.pop_back();
    return value;
  };
  for (const Json& part : guard) {
    if (part.is_object()) {
      stack.emplace_back(shape.at(part.at("size").get<size_t>()));
    } else if (!part.is_string()) {
      stack.push_back(part.is_number_integer() ? IValue(part.get<int64_t>()) : IValue(part.get<double>()));
    } else {
      const auto name = part.get<std::string>();
      const bool of_one = std::ranges::find(kOfOne, name) != std::end(kOfOne);
      const IValue b = of_one ? IValue() : pop();
      const IValue a = pop();
      stack.push_back(on_sizes(name, a, b));
    }
  }
  return number(pop()) != 0;
}

// As torch.autocast does it, for one call.
class WithAutocast {
 public:
  WithAutocast(const std::optional<std::pair<at::ScalarType, bool>>& wanted, at::DeviceType device)
      : wanted_(wanted.has_value()), device_(device) {
    if (!wanted_) return;
    dtype_ = at::autocast::get_autocast_dtype(device);
    enabled_ = at::autocast::is_autocast_enabled(device);
    at::autocast::set_autocast_dtype(device, wanted->first);
    at::autocast::set_autocast_enabled(device, wanted->second);
  }
  ~WithAutocast() {
    if (!wanted_) return;
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
    at::autocast::clear_cache();
  }
  WithAutocast(const WithAutocast&) = delete;
  WithAutocast& operator=(const WithAutocast&) = delete;

 private:
  bool wanted_;
  at::DeviceType device_;
  at::ScalarType dtype_ = at::kFloat;
  bool enabled_ = false;
};

c10::OperatorHandle operator_named(const std::string& op) {
  const std::string name = op.substr(op.find("::") + 2);
  if (!op.starts_with("aten::") || !may_be_called(name))
    unusable("the operator " + op + " is none of those that a network may call");
  const auto dot = op.find('.');
  const auto handle =
      c10::Dispatcher::singleton().findSchema({op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1)});
  if (!handle) unusable("this LibTorch has no operator " + op + "; export with the PyTorch that bnlab was built with");
  return *handle;
}

// What an operator refuses is said with the module that it stands in.
IValue called(const ExportedGraph::Node& node, ExportedGraph::Values& stack) {
  try {
    node.handle->callBoxed(stack);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw Error(Error::Kind::refused, node.op + (node.module.empty() ? "" : " in " + node.module) + ": " +
                                          error.what_without_backtrace());
  }
  if (stack.empty()) return {};
  return stack.size() == 1 ? std::move(stack[0]) : IValue(c10::ivalue::Tuple::create(std::move(stack)));
}

// What these operators return may be their first argument, whatever their schema says.
bool may_return_its_argument(const std::string& op) {
  return op == "aten::dropout" || op == "aten::feature_dropout" || op == "aten::type_as" || op == "py::getitem";
}

}  // namespace

void each_value(const Argument& argument, const std::function<void(int64_t value)>& visit) {
  if (argument.value >= 0) visit(argument.value);
  for (const Argument& item : argument.items) each_value(item, visit);
}

Json read_exported(const std::string& folder) {
  const std::string file = folder + "/" + kGraphFile;
  Mistakes mistakes(file);
  const std::optional<Json> json = parse_strict_json(read_text(file, kLargestGraph), file, mistakes);
  mistakes.throw_if_any();
  if (!json || json->value("version", Json()) != kVersion) {
    unusable(file + ": expected version " + std::to_string(kVersion) + ", got " +
             (json ? shown(json->value("version", Json())) : "none") + "; export the model again with this bnlab.export");
  }
  return *json;
}

std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size) {
  const auto same = [&](const Json& shape) { return shape.at(2) == size[0] && shape.at(3) == size[1]; };
  const std::string again = "; export it again with --example 2,3," + std::to_string(size[0]) + "," + std::to_string(size[1]);
  const std::string images = "images of " + std::to_string(size[0]) + "x" + std::to_string(size[1]);
  if (std::ranges::any_of(exported.at("verified"), [&](const Json& found) { return same(found.at("shape")); })) return "";
  if (const auto fixed = exported.at("fixed_size").get<std::string>(); !fixed.empty())
    return images + " do not fit, because " + fixed + again;
  for (const Json& guard : exported.at("guards"))
    if (!holds(guard, {2, exported.at("example").at(1).get<int64_t>(), size[0], size[1]}))
      return images + " take another way through the model than the example, and were not verified" + again;
  return "";
}

ExportedGraph::ExportedGraph(const Json& exported, const std::string& mode, const at::TensorOptions& run) {
  const Json& graph = exported.at(mode);
  images_ = static_cast<int64_t>(exported.at("tensors").size());
  const Json& nodes = graph.at("nodes");
  if (!nodes.is_array() || nodes.size() > kMostNodes) unusable("expected at most " + std::to_string(kMostNodes) + " nodes");
  for (int64_t value = 0; value <= images_; ++value) roots_.push_back(value);
  depends_.assign(roots_.size(), false);
  depends_.back() = true;
  for (const Json& json : nodes) {
    Node node{.op = json.at("op").get<std::string>(), .module = json.at("module").get<std::string>()};
    const int64_t value = value_of(nodes_.size());
    try {
      node.site = json.value("site", int64_t{-1});
      if (node.site < -1 || node.site >= static_cast<int64_t>(exported.at("sites").size())) unusable("a site that is not there");
      if (node.site >= 0 && node.op != "aten::batch_norm") unusable("a site that is no batch norm");
      if (json.contains("random")) node.random = json.at("random").get<int64_t>();
      node.grad = json.value("grad", true);
      node.like = json.value("like", false);
      if (json.contains("autocast"))
        node.autocast = {type_named(json.at("autocast").at(0).get<std::string>()), json.at("autocast").at(1).get<bool>()};
      const ArgumentReader reader(value, run);
      const Json& arguments = json.at("args");
      int64_t root = value;
      if (node.op.starts_with("py::")) {
        for (const Json& argument : arguments) node.arguments.push_back(reader.read(argument, c10::AnyType::get()));
        if (node.arguments.empty() || node.arguments.size() > 2) unusable("expected one or two numbers");
      } else {
        node.handle = operator_named(node.op);
        const auto& schema = node.handle->schema();
        if (arguments.size() != schema.arguments().size()) {
          unusable("expected " + std::to_string(schema.arguments().size()) + " arguments, got " +
                   std::to_string(arguments.size()));
        }
        for (size_t i = 0; i < arguments.size(); ++i) {
          const c10::Argument& declared = schema.arguments()[i];
          Argument argument = reader.read(arguments[i], declared.type());
          const bool none = argument.value < 0 && !argument.is_list && argument.constant.isNone();
          if (none && !argument.optional) unusable("lacks its argument " + declared.name());
          if (declared.name() == "cudnn_enabled") argument.constant = at::globalContext().userEnabledCuDNN();
          if (const auto* alias = declared.alias_info(); alias != nullptr && argument.value >= 0) {
            if (alias->isWrite()) node.writes = argument.value;
            if (!schema.returns().empty()) root = roots_[static_cast<size_t>(argument.value)];
          }
          node.arguments.push_back(std::move(argument));
        }
        if (node.handle->hasTag(at::Tag::nondeterministic_seeded) && !node.random) {
          const auto silent = [&](const char* name, const IValue& quiet) {
            const auto at = schema.argumentIndexWithName(name);
            const IValue& given = at ? node.arguments[static_cast<size_t>(*at)].constant : IValue();
            return at && !given.isNone() && given.isScalar() && number(given) == number(quiet);
          };
          if (!silent("train", false) && !silent("p", 0.0) && !silent("dropout_p", 0.0))
            unusable("draws random numbers, which the export does not say");
        }
      }
      if (may_return_its_argument(node.op) && node.arguments[0].value >= 0)
        root = roots_[static_cast<size_t>(node.arguments[0].value)];
      bool depends = false;
      for (const Argument& argument : node.arguments)
        each_value(argument, [&](int64_t read) { depends = depends || depends_[static_cast<size_t>(read)]; });
      if (depends && node.writes >= 0) depends_[static_cast<size_t>(node.writes)] = true;
      depends_.push_back(depends);
      roots_.push_back(root);
    } catch (const std::exception& error) {
      unusable(mode + ", node " + std::to_string(nodes_.size()) + " (" + node.op + (node.module.empty() ? "" : " in " + node.module) +
               "): " + error.what());
    }
    nodes_.push_back(std::move(node));
  }
  for (const Json& output : graph.at("outputs")) {
    outputs_.push_back({output.at("name").get<std::string>(), output.at("value").get<int64_t>(),
                        output.at("shape").get<std::vector<int64_t>>()});
    if (outputs_.back().value < 0 || outputs_.back().value >= value_of(nodes_.size()))
      unusable(mode + ": output " + shown(output.at("name")) + " is a value that is not there");
  }
  if (outputs_.empty()) unusable(mode + ": no output");
}

void ExportedGraph::keep(const std::vector<int64_t>& asked) {
  std::vector<bool> needed(roots_.size(), false), root_needed(roots_.size(), false);
  const auto need = [&](int64_t value) {
    needed[static_cast<size_t>(value)] = true;
    root_needed[static_cast<size_t>(root(value))] = true;
  };
  std::ranges::for_each(asked, need);
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    const bool writes = node.writes >= 0 && (root_needed[static_cast<size_t>(root(node.writes))] || root(node.writes) < images_);
    node.skipped = !writes && !needed[static_cast<size_t>(value_of(i))];
    if (node.skipped) continue;
    for (const Argument& argument : node.arguments) each_value(argument, need);
  }
}

std::vector<int64_t> ExportedGraph::readers(const std::vector<int64_t>& asked) const {
  std::vector<int64_t> readers(roots_.size(), 0);
  const auto count = [&](int64_t value) { ++readers[static_cast<size_t>(value)]; };
  std::ranges::for_each(asked, count);
  for (const Node& node : nodes_)
    for (const Argument& argument : node.arguments)
      if (!node.skipped) each_value(argument, count);
  return readers;
}

void ExportedGraph::finish(const std::vector<int64_t>& asked) {
  std::vector<size_t> last(roots_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].dies.clear();
    last[static_cast<size_t>(value_of(i))] = i;
    for (const Argument& argument : nodes_[i].arguments)
      if (!nodes_[i].skipped) each_value(argument, [&](int64_t value) { last[static_cast<size_t>(value)] = i; });
  }
  for (int64_t value = images_ + 1; value < value_of(nodes_.size()); ++value)  // the images say the device to the end
    if (std::ranges::find(asked, value) == asked.end() && !nodes_.empty())
      nodes_[last[static_cast<size_t>(value)]].dies.push_back(value);
}

ExportedGraph::Values ExportedGraph::begin(const std::vector<at::Tensor>& tensors, const at::Tensor& images) const {
  Values values(tensors.begin(), tensors.end());
  const bool written = std::ranges::any_of(nodes_, [&](const Node& node) {
    return !node.skipped && node.writes >= 0 && root(node.writes) == images_;
  });
  values.emplace_back(written ? images.clone() : images);  // a batch stays as it is
  values.resize(roots_.size());
  return values;
}

void ExportedGraph::run(Values& values, size_t first, size_t last, const Pass& pass) const {
  const at::DeviceType device = values[static_cast<size_t>(images_)].toTensor().device().type();
  const bool grad = at::GradMode::is_enabled();
  Values stack;
  for (size_t i = first; i < last; ++i) {
    const Node& node = nodes_[i];
    IValue& result = values[static_cast<size_t>(value_of(i))];
    if (!node.skipped) {
      const at::AutoGradMode mode(node.grad && grad);
      const WithAutocast autocast(node.autocast, device);
      stack.clear();
      for (const Argument& argument : node.arguments) stack.push_back(filled(argument, values));
      if (node.instead)
        result = node.instead(stack, pass);
      else if (!node.handle)
        result = on_sizes(node.op.substr(4), stack[0], stack.size() > 1 ? stack[1] : IValue());
      else
        result = called(node, stack);
    }
    for (const int64_t value : node.dies) values[static_cast<size_t>(value)] = IValue();
  }
}

}  // namespace bnlab
