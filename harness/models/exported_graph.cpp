#include "harness/models/exported_graph.hpp"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "harness/communicator/reason.hpp"
#include "harness/components/parameters.hpp"
#include "harness/recomputation.hpp"
#include "harness/support/autocast.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_file.hpp"

namespace bnlab {
namespace {

using Argument = ExportedGraph::Argument;
using Node = ExportedGraph::Node;
using c10::IValue;
using c10::TypeKind;

constexpr int64_t kVersion = 1;                    // in graph.json
constexpr size_t kLargestGraph = size_t{1} << 28;  // bytes
constexpr size_t kMostNodes = 1'000'000;
constexpr size_t kLongestList = 100'000;
constexpr int kDeepestJson = 16, kDeepestList = 2;
constexpr int64_t kLongestSide = 4096;  // pixels of the example, which is tried before a run
constexpr int64_t kMostChannels = 1'000'000, kLargestSize = 1'000'000'000;

// The operators of ATen that a network may call, by name, without the _ of those that change their first
// argument. All only compute: the dispatcher also knows some that open files or change what others hold.
constexpr const char* kOperators = R"(
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution linear matmul mm bmm addmm
baddbmm einsum scaled_dot_product_attention lstm gru
batch_norm group_norm layer_norm instance_norm rms_norm linalg_vector_norm norm normalize
max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_unpool2d avg_pool1d avg_pool2d avg_pool3d
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d upsample_nearest1d
upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d
_upsample_bilinear2d_aa upsample_bicubic2d upsample_trilinear3d pixel_shuffle pixel_unshuffle channel_shuffle
grid_sampler grid_sampler_2d affine_grid_generator im2col col2im
relu relu6 silu gelu mish elu celu selu leaky_relu prelu hardswish hardsigmoid hardtanh hardshrink softplus
softshrink softsign threshold sigmoid log_sigmoid tanh glu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
square reciprocal abs neg sign sin cos tan atan atan2 erf pow add sub rsub mul div true_divide floor_divide
fmod remainder lerp addcmul addcdiv clamp clamp_min clamp_max minimum maximum where masked_fill floor ceil
round trunc frac eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
bitwise_not __and__ __or__ isnan isinf isfinite nan_to_num cumsum softmax log_softmax
sum mean prod std var var_mean std_mean amax amin max min any all argmax argmin logsumexp topk sort
view view_as reshape reshape_as flatten unflatten squeeze unsqueeze permute transpose t movedim swapaxes
expand expand_as broadcast_to repeat repeat_interleave tile cat concat stack hstack vstack chunk split
split_with_sizes tensor_split unbind select slice narrow index index_select gather take_along_dim roll flip
rot90 diagonal tril triu unfold pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d
meshgrid contiguous clone to _to_copy type_as detach lift_fresh lift_fresh_copy alias copy sym_size size numel
sym_numel embedding one_hot
empty empty_like new_empty zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full arange
linspace scalar_tensor eye fill zero dropout feature_dropout bernoulli rand rand_like randn randn_like
)";

[[noreturn]] void unusable(const std::string& what) {
  throw Error(Error::Kind::data, what);
}

c10::OperatorHandle operator_named(const std::string& op) {
  static const std::set<std::string> allowed = [] {
    std::istringstream words(kOperators);
    return std::set<std::string>(std::istream_iterator<std::string>(words), {});
  }();
  const size_t dot = std::min(op.find('.'), op.size());
  const std::string name = op.substr(0, dot), overload = op.substr(std::min(dot + 1, op.size()));
  const auto allows = [&](size_t length) {
    return name.starts_with("aten::") && allowed.contains(name.substr(6, length - 6));
  };
  // An overload with "out" writes into what it is given.
  if (overload.find("out") != std::string::npos ||
      !(allows(name.size()) || (name.ends_with("_") && allows(name.size() - 1))))
    unusable("the operator " + op + " is none of those that a network may call");
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle)
    unusable("this LibTorch has no operator " + op + "; export with the PyTorch that bnlab was built with");
  return *handle;
}

template <class Map>
auto known(const Map& all, const std::string& name) {
  const auto found = all.find(name);
  if (found == all.end()) unusable(shown(name) + " is not known here");
  return found->second;
}

IValue constant(const Json& json, const at::TensorOptions& run) {
  static const std::map<std::string, at::MemoryFormat> formats = {
      {"contiguous_format", at::MemoryFormat::Contiguous},
      {"preserve_format", at::MemoryFormat::Preserve},
      {"channels_last", at::MemoryFormat::ChannelsLast}};
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) {
    if (json != INT64_MAX && (json < -kLargestSize || json > kLargestSize))  // INT64_MAX: the end of a slice
      unusable("got " + shown(json) + ", more than " + std::to_string(kLargestSize));
    return json.get<int64_t>();
  }
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  const std::string kind = json.size() == 1 ? json.begin().key() : "";
  const std::string text = kind.empty() ? "" : json.begin().value().get<std::string>();
  if (kind == "device") return run.device();
  if (kind == "dtype" && text == "run") return static_cast<int64_t>(c10::typeMetaToScalarType(run.dtype()));
  if (kind == "dtype") return static_cast<int64_t>(known(c10::getStringToDtypeMap(), text));
  if (kind == "memory_format") return static_cast<int64_t>(known(formats, text));
  if (kind == "float") return text == "nan" ? std::nan("") : text == "-inf" ? -HUGE_VAL : HUGE_VAL;
  unusable("an argument " + shown(json));
}

// A number where the operator takes a tensor, as in add_.Tensor(x, 1), is one that does not widen the other's
// type; an integer where it takes a floating-point number is one.
IValue fitting(IValue value, const c10::Type& type) {
  if (type.kind() == TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  if (type.kind() != TypeKind::TensorType || !value.isScalar()) return value;
  const auto own = value.isDouble() ? at::kDouble : value.isBool() ? at::kBool : at::kLong;
  at::Tensor number = at::scalar_tensor(value.toScalar(), own);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

// before: how many values there are before the node.
Argument argument_of(const Json& json, c10::TypePtr type, size_t before, const at::TensorOptions& run,
                     int depth = 0) {
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (json.is_object() && json.contains("v")) {
    const auto value = json.at("v").get<size_t>();  // a negative number becomes one that is too large
    if (value >= before) unusable("reads value " + shown(json.at("v")) + " of " + std::to_string(before));
    return {.value = value, .type = type};
  }
  const auto list = type->cast<c10::ListType>();
  if (json.is_array() || (list != nullptr && !json.is_null())) {
    if (depth == kDeepestList || json.size() > kLongestList) unusable("a list that is too long or too deep");
    const c10::TypePtr item = list != nullptr ? list->getElementType() : c10::TypePtr(c10::AnyType::get());
    std::vector<Argument> items;
    for (const Json& each : json.is_array() ? json : Json::array({json}))  // int[2] may be one number
      items.push_back(argument_of(each, item, before, run, depth + 1));
    return {.list = std::move(items), .type = item};
  }
  const IValue value = fitting(constant(json, run), *type);
  const bool fits =
      type->kind() == TypeKind::NumberType ? value.isScalar() : value.type()->isSubtypeOf(*type);
  if (!value.isNone() && !fits) unusable("got " + shown(json) + " where the operator takes " + type->str());
  return {.constant = value, .type = type};
}

double number(const IValue& value) {
  return value.isNone() ? 0 : value.toScalar().toDouble();
}

// Python's arithmetic on sizes, which are small enough for floating-point numbers to hold them.
IValue on_sizes(const std::string& name, const IValue& a, const IValue& b) {
  static const std::map<std::string, double (*)(double a, double b)> functions = {
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"truediv", [](double a, double b) { return a / b; }},
      {"floordiv", [](double a, double b) { return std::floor(a / b); }},
      {"mod", [](double a, double b) { return a - std::floor(a / b) * b; }},
      {"max", [](double a, double b) { return std::max(a, b); }},
      {"min", [](double a, double b) { return std::min(a, b); }},
      {"neg", [](double a, double) { return -a; }},
      {"float", [](double a, double) { return a; }},
      {"int", [](double a, double) { return std::trunc(a); }},
      {"floor", [](double a, double) { return std::floor(a); }},
      {"ceil", [](double a, double) { return std::ceil(a); }},
      {"round", [](double a, double) { return std::nearbyint(a); }}};
  static const std::set<std::string> fractions = {"truediv", "float"},
                                     whole = {"int", "floor", "ceil", "round"};
  if (name == "getitem") {
    const auto members = a.isTuple() ? a.toTupleRef().elements().vec() : a.toListRef().vec();
    return members.at(static_cast<size_t>(b.toInt()));
  }
  const double result = known(functions, name)(number(a), number(b));
  if (fractions.contains(name) || (!whole.contains(name) && (a.isDouble() || b.isDouble()))) return result;
  if (!(std::abs(result) < 1e15)) unusable(name + " of sizes that no image has");
  return static_cast<int64_t>(result);
}

// What an operator refuses is said with the module that it stands in.
IValue called(const Node& node, ExportedGraph::Values& stack) {
  try {
    node.handle->callBoxed(stack);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw Error(Error::Kind::refused, node.named() + ": " + error.what_without_backtrace());
  }
  if (stack.empty()) return {};
  return stack.size() == 1 ? std::move(stack[0]) : IValue(c10::ivalue::Tuple::create(std::move(stack)));
}

// Whether a node makes one tensor, and no list of them.
bool makes_a_tensor(const Node& node) {
  return node.handle && node.handle->schema().returns().size() == 1 &&
         node.handle->schema().returns()[0].type()->kind() == TypeKind::TensorType;
}

void expect_number(const std::string& key, const Json& number, const Json& low, const Json& high) {
  if (!number.is_number() || number < low || number > high)
    unusable(key + ": expected a number from " + shown(low) + " to " + shown(high) + ", got " +
             shown(number));
}

// What is asked of graph.json beside its nodes.
void check(const Json& json) {
  if (const Json version = json.is_object() ? json.value("version", Json()) : Json(); version != kVersion)
    unusable("expected version " + std::to_string(kVersion) + ", got " + shown(version));
  const auto place = [](const std::string& list, size_t i) { return list + "[" + std::to_string(i) + "]"; };
  const auto expect_shape = [&](const std::string& key, const Json& shape, int64_t most) {
    for (size_t i = 0; i < shape.size(); ++i) expect_number(place(key, i), shape.at(i), 1, most);
  };
  if (json.at("example").size() != 4)
    unusable("example: expected 4 numbers, got " + shown(json.at("example")));
  expect_shape("example", json.at("example"), kLongestSide);
  expect_number("size_step", json.at("size_step"), 0, kLongestSide);
  for (size_t i = 0; i < json.at("sites").size(); ++i) {
    const Json& site = json.at("sites").at(i);
    expect_number(place("sites", i) + ".channels", site.at("channels"), 1, kMostChannels);
    for (const char* key : {"eps", "momentum"})
      expect_number(place("sites", i) + "." + key, site.at(key), 0, 1);
  }
  for (const Json& output : json.at("evaluate").at("outputs"))
    expect_shape("evaluate.outputs.shape", output.at("shape"), kLargestSize);
}

}  // namespace

Json read_exported(const std::string& folder) {
  const std::string file = folder + "/" + kGraphFile;
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepestJson; };
  Json json = Json::parse(read_text(file, kLargestGraph), shallow, /*allow_exceptions=*/false);
  try {
    if (json.is_discarded()) unusable("is no JSON, or the end of it is missing");
    check(json);
  } catch (const std::exception& error) {
    unusable(file + ": " + error.what() + "; export the model again with this bnlab.export");
  }
  return json;
}

const Json& output_named(const Json& exported, const std::string& mode, const std::string& name) {
  const Json& outputs = exported.at(mode).at("outputs");
  const auto is_it = [&](const Json& each) { return each.at("name") == name; };
  const auto found = name.empty() ? outputs.begin() : std::ranges::find_if(outputs, is_it);
  if (found == outputs.end()) {
    const Json names = mapped(outputs, [](const Json& each) { return each.at("name"); });
    unusable("mode " + mode + ": expected an output of " + shown(names) + ", got " + shown(name));
  }
  return *found;
}

std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size) {
  const auto step = exported.at("size_step").get<int64_t>();
  const auto fits = [&](size_t side) {
    const int64_t apart = size[side] - exported.at("example").at(side + 2).get<int64_t>();
    return apart == 0 || (step > 0 && apart % step == 0);
  };
  if (fits(0) && fits(1)) return "";
  const std::string height = std::to_string(size[0]), width = std::to_string(size[1]);
  const auto why = exported.at("fixed_size").get<std::string>();
  return "images of " + height + "x" + width + " do not fit, because " + why +
         "; export it again with --example 2,3," + height + "," + width;
}

void Argument::each_value(const std::function<void(size_t value)>& visit) const {
  if (value) visit(*value);
  if (list)
    for (const Argument& item : *list) item.each_value(visit);
}

IValue Argument::filled(const ExportedGraph::Values& values) const {
  if (value) return fitting(values[*value], *type);
  if (!list) return constant;
  c10::impl::GenericList items(type);
  for (const Argument& item : *list) items.push_back(item.filled(values));
  return items;
}

void Node::each_value(const std::function<void(size_t value)>& visit) const {
  for (const Argument& argument : arguments) argument.each_value(visit);
}

bool Node::is_one_of(std::initializer_list<const char*> ops) const {
  return std::ranges::find(ops, op) != ops.end();
}

bool Node::is_size() const {
  return (!handle && op != "py::getitem") || op.starts_with("aten::sym_");
}

// Dropout draws nothing outside of training, nor with a probability of 0.
bool Node::draws() const {
  for (size_t i = 0; handle && i < arguments.size(); ++i) {
    const std::string& name = handle->schema().arguments()[i].name();
    const IValue& given = arguments[i].constant;
    if ((name == "train" || name == "p" || name == "dropout_p") && given.isScalar() && number(given) == 0)
      return false;
  }
  return has_tag(at::Tag::nondeterministic_seeded);
}

ExportedGraph::ExportedGraph(const Json& exported, const std::string& mode,
                             const std::vector<std::string>& outputs, const at::TensorOptions& run)
    : images_(exported.at("tensors").size()), device_(run.device()) {
  const Json& nodes = exported.at(mode).at("nodes");
  if (!nodes.is_array() || nodes.size() > kMostNodes)
    unusable(mode + ".nodes: expected a list of at most " + std::to_string(kMostNodes));
  for (size_t value = 0; value <= images_; ++value) roots_.push_back(value);
  for (const Json& json : nodes) {
    try {
      add(json, exported.at("sites").size(), run);
    } catch (const std::exception& error) {
      unusable(mode + ", node " + std::to_string(nodes_.size()) + " (" + shown(json.value("op", Json())) +
               "): " + reason_of(error));
    }
  }
  for (const std::string& name : outputs) {
    asked_.push_back(output_named(exported, mode, name).at("value"));
    if (asked_.back() >= roots_.size())
      unusable(mode + ": the output " + shown(name) + " is a value that is not there");
  }
  skip_what_nothing_needs();
  find_readers();
}

void ExportedGraph::add(const Json& json, size_t sites, const at::TensorOptions& run) {
  Node node{.op = json.at("op").get<std::string>(), .module = json.at("module").get<std::string>()};
  const bool of_python = node.op.starts_with("py::");
  if (!of_python) node.handle = operator_named(node.op);
  if (json.contains("site")) node.site = json.at("site").get<size_t>();
  if (node.site && (*node.site >= sites || node.op != "aten::batch_norm"))
    unusable("a site that is not there");
  node.adds_alike = json.value("like", false) && node.is_one_of({"aten::add.Tensor", "aten::add_.Tensor"});
  node.grad = json.value("grad", true);
  if (json.contains("autocast"))
    node.autocast = {known(c10::getStringToDtypeMap(), json.at("autocast").at(0).get<std::string>()),
                     json.at("autocast").at(1).get<bool>()};
  const Json& given = json.at("args");
  const size_t expected =
      of_python ? std::clamp<size_t>(given.size(), 1, 2) : node.handle->schema().arguments().size();
  if (given.size() != expected)
    unusable("expected " + std::to_string(expected) + " arguments, got " + std::to_string(given.size()));
  size_t root = roots_.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const c10::Argument* declared = of_python ? nullptr : &node.handle->schema().arguments()[i];
    const c10::TypePtr type = of_python ? c10::TypePtr(c10::AnyType::get()) : declared->type();
    const Argument& argument =
        node.arguments.emplace_back(argument_of(given.at(i), type, roots_.size(), run));
    const c10::AliasInfo* alias = of_python ? nullptr : declared->alias_info();
    // What some return may be their first argument, whatever their schema says.
    const bool returned =
        i == 0 && node.is_one_of({"aten::dropout", "aten::feature_dropout", "aten::type_as", "py::getitem"});
    if (argument.value && (alias != nullptr || returned)) root = roots_[*argument.value];
    if (alias != nullptr && alias->isWrite()) node.writes = argument.value;
    if (!of_python && declared->name() == "cudnn_enabled")
      node.arguments.back().constant = at::globalContext().userEnabledCuDNN();
  }
  if (node.writes && roots_[*node.writes] < images_) unusable("changes a tensor of the weights file");
  nodes_.push_back(std::move(node));
  roots_.push_back(root);
}

void ExportedGraph::skip_what_nothing_needs() {
  std::vector<bool> needed(roots_.size(), false);  // values, and the memory that they may share
  const auto need = [&](size_t value) { needed[value] = needed[roots_[value]] = true; };
  std::ranges::for_each(asked_, need);
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    const bool changes = node.writes && needed[roots_[*node.writes]];
    node.skipped = !changes && !needed[value_of(i)];
    if (!node.skipped) node.each_value(need);
  }
}

void ExportedGraph::find_readers() {
  readers_.assign(roots_.size(), {});
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].dies.clear();
    if (!nodes_[i].skipped) nodes_[i].each_value([&](size_t value) { readers_[value].push_back(i); });
  }
  for (const size_t value : asked_) readers_[value].push_back(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::vector<size_t>& readers = readers_[value_of(i)];
    if (const size_t last = readers.empty() ? i : readers.back(); last < nodes_.size())
      nodes_[last].dies.push_back(value_of(i));
  }
  find_blocks();
}

void ExportedGraph::find_blocks() {
  blocks_.clear();
  std::set<size_t> live;  // values of the block that are read behind it
  bool site = false, kept = false;
  size_t first = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.skipped) {
      if (!node.is_size()) live.insert(value_of(i));
      site = site || node.site;
      // What changes the memory of others must not do so twice.
      kept = kept || (node.writes && roots_[*node.writes] < value_of(first));
    }
    for (const size_t value : node.dies) live.erase(value);
    if (!site || live.size() != 1 || !makes_a_tensor(nodes_[*live.begin() - value_of(0)])) continue;
    if (!kept) blocks_.push_back({.first = first, .last = i + 1, .output = *live.begin()});
    live.clear();
    site = kept = false;
    first = i + 1;
  }
}

std::optional<size_t> ExportedGraph::only_reader(size_t value) const {
  const std::vector<size_t>& readers = readers_[value];
  return readers.size() == 1 && readers[0] < nodes_.size() ? std::optional(readers[0]) : std::nullopt;
}

std::optional<size_t> ExportedGraph::follower(size_t node) const {
  const std::optional<size_t> next = only_reader(value_of(node));
  for (size_t i = node + 1; next && i < *next; ++i)
    if (!nodes_[i].skipped && nodes_[i].writes) return std::nullopt;
  return next;
}

std::vector<at::Tensor> ExportedGraph::answers(const std::vector<at::Tensor>& tensors,
                                               const at::Tensor& images, const Pass& pass) const {
  Values values(tensors.begin(), tensors.end());
  const bool changed = std::ranges::any_of(nodes_, [&](const Node& node) {
    return !node.skipped && node.writes && roots_[*node.writes] == images_;
  });
  values.emplace_back(changed ? images.clone() : images);  // a batch stays as it is
  values.resize(roots_.size());
  size_t next = 0;
  if (pass.details.recompute != Recompute::none)
    for (const Block& block : blocks_) {
      run(values, next, block.first, pass);
      recompute(values, block, pass);
      next = block.last;
    }
  run(values, next, nodes_.size(), pass);
  return mapped(asked_, [&](size_t value) { return values[value].toTensor(); });
}

void ExportedGraph::run(Values& values, size_t first, size_t last, const Pass& pass) const {
  const bool grad = at::GradMode::is_enabled();
  Values stack;
  for (size_t i = first; i < last; ++i) {
    const Node& node = nodes_[i];
    if (!node.skipped) {
      const at::AutoGradMode mode(node.grad && grad);
      std::optional<WithAutocast> autocast;
      if (node.autocast)
        autocast.emplace(AutocastState{device_.type(), node.autocast->second, node.autocast->first});
      stack.clear();
      for (const Argument& argument : node.arguments) stack.push_back(argument.filled(values));
      values[value_of(i)] =
          node.instead  ? node.instead(stack, pass)
          : node.handle ? called(node, stack)
                        : on_sizes(node.op.substr(4), stack[0], stack.size() > 1 ? stack[1] : IValue());
    }
    for (const size_t value : node.dies) values[value] = IValue();
  }
}

void ExportedGraph::recompute(Values& values, const Block& block, const Pass& pass) const {
  std::vector<size_t> places;  // tensors that there are before the block
  std::vector<at::Tensor> inputs;
  Values others = values;  // weights and sizes
  for (size_t value = images_; value < value_of(block.first); ++value) {
    if (!values[value].isTensor()) continue;
    places.push_back(value);
    inputs.push_back(values[value].toTensor());
    others[value] = IValue();
  }
  // The first pass hands on the sizes that it finds.
  const auto forward = [this, block, places, others, found = &values](const std::vector<at::Tensor>& given,
                                                                      const Pass& inner) mutable {
    Values own = others;
    for (size_t i = 0; i < given.size(); ++i) own[places[i]] = given[i];
    run(own, block.first, block.last, inner);
    for (size_t i = block.first; i < block.last && found != nullptr; ++i)
      if (nodes_[i].is_size()) (*found)[value_of(i)] = own[value_of(i)];
    found = nullptr;
    return own[block.output].toTensor();
  };
  values[block.output] = recomputed(inputs, pass, forward);
  for (size_t i = block.first; i < block.last; ++i)
    for (const size_t value : nodes_[i].dies) values[value] = IValue();
}

}  // namespace bnlab
