#include "harness/models/exported_graph.hpp"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>

#include "harness/autocast.hpp"
#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/models/exported_operators.hpp"
#include "harness/recomputation.hpp"
#include "harness/text_file.hpp"

namespace bnlab {
namespace {

using Argument = ExportedGraph::Argument;
using Node = ExportedGraph::Node;
using c10::IValue;
using c10::TypeKind;

constexpr int64_t kVersion = 1;                    // of graph.json
constexpr size_t kLargestGraph = size_t{1} << 28;  // bytes
constexpr size_t kMostNodes = 1'000'000;
constexpr size_t kLongestList = 100'000;
constexpr int kDeepestList = 2;  // lists in lists

[[noreturn]] void unusable(const std::string& what) {
  throw Error(Error::Kind::data, what);
}

at::ScalarType type_named(const std::string& name) {
  const auto found = c10::getStringToDtypeMap().find(name);
  if (found == c10::getStringToDtypeMap().end()) unusable("a type " + name + " that is not known here");
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
IValue fitting(IValue value, const c10::Type& type) {
  if (type.kind() == TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  if (type.kind() != TypeKind::TensorType || !value.isScalar()) return value;
  const auto own = value.isDouble() ? at::kDouble : value.isBool() ? at::kBool : at::kLong;
  at::Tensor number = at::scalar_tensor(value.toScalar(), own);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

// The argument with the values that it reads. The dispatcher refuses those of another type than it takes.
IValue filled(const Argument& argument, const ExportedGraph::Values& values) {
  if (argument.value) return fitting(values[*argument.value], *argument.type);
  if (argument.items.empty()) return argument.constant;
  c10::impl::GenericList list(argument.type);
  for (const Argument& item : argument.items) list.push_back(filled(item, values));
  return list;
}

IValue constant(const Json& json, const at::TensorOptions& run) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  const std::string kind = json.size() == 1 ? json.begin().key() : "";
  const std::string text = kind.empty() ? "" : json.begin().value().get<std::string>();
  if (kind == "device") return run.device();
  if (kind == "dtype" && text == "run") return static_cast<int64_t>(c10::typeMetaToScalarType(run.dtype()));
  if (kind == "dtype") return static_cast<int64_t>(type_named(text));
  if (kind == "layout") return static_cast<int64_t>(at::kStrided);
  if (kind == "memory_format") return static_cast<int64_t>(format_named(text));
  if (kind == "float") return text == "nan" ? std::nan("") : text == "-inf" ? -HUGE_VAL : HUGE_VAL;
  unusable("an argument " + shown(json));
}

// before: how many values there are before the node.
Argument argument_of(const Json& json, c10::TypePtr type, size_t before, const at::TensorOptions& run,
                     int depth = 0) {
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  const auto list = type->cast<c10::ListType>();
  if (json.is_object() && json.contains("v")) {
    const auto value = json.at("v").get<size_t>();  // a negative number becomes one that is too large
    if (value >= before) unusable("reads value " + shown(json.at("v")) + " of " + std::to_string(before));
    return {.value = value, .type = type};
  }
  if (!json.is_array() && (list == nullptr || json.is_null())) {
    const IValue value = fitting(constant(json, run), *type);
    const bool fits =
        type->kind() == TypeKind::NumberType ? value.isScalar() : value.type()->isSubtypeOf(*type);
    if (!value.isNone() && !fits) unusable("got " + shown(json) + " where the operator takes " + type->str());
    return {.constant = value, .type = type};
  }
  if (depth == kDeepestList || json.size() > kLongestList) unusable("a list that is too long or too deep");
  Argument argument{.type = list != nullptr ? list->getElementType() : c10::TypePtr(c10::AnyType::get())};
  bool constant = true;
  for (const Json& item : json.is_array() ? json : Json::array({json})) {  // int[2] may be one number
    argument.items.push_back(argument_of(item, argument.type, before, run, depth + 1));
    each_value(argument.items.back(), [&](size_t) { constant = false; });
  }
  if (constant) {
    c10::impl::GenericList items(argument.type);
    for (const Argument& item : argument.items) items.push_back(item.constant);
    argument.constant = items;
    argument.items.clear();
  }
  return argument;
}

double number(const IValue& value) {
  return value.isInt()    ? static_cast<double>(value.toInt())
         : value.isBool() ? value.toBool()
                          : value.toDouble();
}

int64_t floor_division(int64_t m, int64_t n) {
  if (n == 0) unusable("a division of sizes by 0");
  if (n == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(m));  // of the lowest number m / n traps
  return m / n - (m % n != 0 && (m < 0) != (n < 0) ? 1 : 0);
}

// A member of what an operator has returned.
IValue member(const IValue& all, int64_t place) {
  const std::vector<IValue> members =
      all.isTuple() ? all.toTupleRef().elements().vec() : all.toListRef().vec();
  return members.at(static_cast<size_t>(place < 0 ? place + static_cast<int64_t>(members.size()) : place));
}

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
  if (name == "max") return whole ? IValue(std::max(m, n)) : IValue(std::max(x, y));
  if (name == "min") return whole ? IValue(std::min(m, n)) : IValue(std::min(x, y));
  if (name == "neg") return whole ? IValue(-m) : IValue(-x);
  if (name == "floor") return static_cast<int64_t>(std::floor(x));
  if (name == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (name == "trunc" || name == "int") return static_cast<int64_t>(std::trunc(x));
  if (name == "round") return static_cast<int64_t>(std::nearbyint(x));  // halves to even, as in Python
  if (name == "float") return x;
  unusable("a function " + name + " that is not known here");
}

c10::OperatorHandle operator_named(const std::string& op) {
  if (!may_be_called(op)) unusable("the operator " + op + " is none of those that a network may call");
  const auto dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  const auto handle = c10::Dispatcher::singleton().findSchema({op.substr(0, dot), overload});
  if (!handle)
    unusable("this LibTorch has no operator " + op + "; export with the PyTorch that bnlab was built with");
  return *handle;
}

// Whether an operator that may draw random numbers does: dropout does not outside of training, nor with a
// probability of 0.
bool draws(const Node& node) {
  if (!node.handle->hasTag(at::Tag::nondeterministic_seeded)) return false;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const std::string& name = node.handle->schema().arguments()[i].name();
    const IValue& given = node.arguments[i].constant;
    if ((name == "train" || name == "p" || name == "dropout_p") && given.isScalar() && number(given) == 0)
      return false;
  }
  return true;
}

// What these operators return may be their first argument, whatever their schema says.
bool may_return_its_argument(const std::string& op) {
  return op == "aten::dropout" || op == "aten::feature_dropout" || op == "aten::type_as" ||
         op == "py::getitem";
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
  return node.instead || (node.handle && node.handle->schema().returns().size() == 1 &&
                          node.handle->schema().returns()[0].type()->kind() == c10::TypeKind::TensorType);
}
bool is_size(const Node& node) {
  return (!node.handle && node.op != "py::getitem") || node.op.starts_with("aten::sym_");
}

}  // namespace

bool is_one_of(const std::string& op, std::initializer_list<const char*> names) {
  return std::ranges::find(names, op) != names.end();
}

void each_value(const Argument& argument, const std::function<void(size_t value)>& visit) {
  if (argument.value) visit(*argument.value);
  for (const Argument& item : argument.items) each_value(item, visit);
}

void each_value(const Node& node, const std::function<void(size_t value)>& visit) {
  for (const Argument& argument : node.arguments) each_value(argument, visit);
}

Json read_exported(const std::string& folder) {
  const std::string file = folder + "/" + kGraphFile;
  Json json = Json::parse(read_text(file, kLargestGraph), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    unusable(file + ": is no JSON, or the end of it is missing; export the model again");
  if (const Json version = json.is_object() ? json.value("version", Json()) : Json(); version != kVersion) {
    unusable(file + ": expected version " + std::to_string(kVersion) + ", got " + shown(version) +
             "; export the model again with this bnlab.export");
  }
  return json;
}

std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size) {
  const auto same = [&](const Json& found) {
    return found.at("shape").at(2) == size[0] && found.at("shape").at(3) == size[1];
  };
  if (std::ranges::any_of(exported.at("verified"), same)) return "";
  const auto step = exported.at("size_step").get<int64_t>();
  const auto fits = [&](size_t side) {
    return step > 0 && (size[side] - exported.at("example").at(side + 2).get<int64_t>()) % step == 0;
  };
  if (fits(0) && fits(1)) return "";
  const std::string height = std::to_string(size[0]), width = std::to_string(size[1]);
  return "images of " + height + "x" + width + " do not fit, because " +
         exported.at("fixed_size").get<std::string>() + "; export it again with --example 2,3," + height +
         "," + width;
}

ExportedGraph::ExportedGraph(const Json& exported, const std::string& mode,
                             const std::vector<std::string>& outputs, const at::TensorOptions& run)
    : images_(exported.at("tensors").size()), device_(run.device()) {
  const Json& graph = exported.at(mode);
  const Json& nodes = graph.at("nodes");
  if (!nodes.is_array() || nodes.size() > kMostNodes)
    unusable("expected at most " + std::to_string(kMostNodes) + " nodes");
  for (size_t value = 0; value <= images_; ++value) roots_.push_back(value);
  for (const Json& json : nodes) {
    const std::string place = mode + ", node " + std::to_string(nodes_.size());
    try {
      nodes_.push_back(read(json, exported, run));
    } catch (const std::exception& error) {
      unusable(place + " (" + shown(json.value("op", Json())) + "): " + error.what());
    }
    const Node& node = nodes_.back();
    size_t root = value_of(nodes_.size() - 1);
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const bool shares = node.handle && node.handle->schema().arguments()[i].alias_info() != nullptr;
      if (node.arguments[i].value && (shares || (i == 0 && may_return_its_argument(node.op))))
        root = roots_[*node.arguments[i].value];
    }
    roots_.push_back(root);
  }
  const Json& given = graph.at("outputs");
  for (const std::string& name : outputs) {
    const auto is_it = [&](const Json& each) { return each.at("name") == name; };
    const auto found = name.empty() ? given.begin() : std::ranges::find_if(given, is_it);
    if (found == given.end()) unusable("has no output " + shown(name) + " in mode " + mode);
    asked_.push_back(found->at("value"));
    if (asked_.back() >= value_of(nodes_.size()))
      unusable(mode + ": the output " + shown(name) + " is a value that is not there");
  }
  skip_what_nothing_needs();
  find_readers();
}

ExportedGraph::Node ExportedGraph::read(const Json& json, const Json& exported,
                                        const at::TensorOptions& run) const {
  Node node{.op = json.at("op").get<std::string>(), .module = json.at("module").get<std::string>()};
  const size_t before = value_of(nodes_.size());
  if (json.contains("site")) node.site = json.at("site").get<size_t>();
  if (node.site && (*node.site >= exported.at("sites").size() || node.op != "aten::batch_norm"))
    unusable("a site that is not there");
  if (json.contains("random")) node.random = json.at("random").get<int64_t>();
  node.grad = json.value("grad", true);
  node.like = json.value("like", false);
  if (json.contains("autocast"))
    node.autocast = {type_named(json.at("autocast").at(0).get<std::string>()),
                     json.at("autocast").at(1).get<bool>()};
  const Json& arguments = json.at("args");
  if (node.op.starts_with("py::")) {
    for (const Json& each : arguments)
      node.arguments.push_back(argument_of(each, c10::AnyType::get(), before, run));
    if (node.arguments.empty() || node.arguments.size() > 2) unusable("expected one or two arguments");
    return node;
  }
  node.handle = operator_named(node.op);
  const auto& declared = node.handle->schema().arguments();
  if (arguments.size() != declared.size())
    unusable("expected " + std::to_string(declared.size()) + " arguments, got " +
             std::to_string(arguments.size()));
  for (size_t i = 0; i < declared.size(); ++i) {
    node.arguments.push_back(argument_of(arguments[i], declared[i].type(), before, run));
    Argument& argument = node.arguments.back();
    if (declared[i].name() == "cudnn_enabled") argument.constant = at::globalContext().userEnabledCuDNN();
    if (declared[i].alias_info() != nullptr && declared[i].alias_info()->isWrite())
      node.writes = argument.value;
  }
  if (node.writes && root(*node.writes) < images_) unusable("changes a tensor of the weights file");
  if (draws(node) && !node.random) unusable("draws random numbers, which the export does not say");
  return node;
}

void ExportedGraph::skip_what_nothing_needs() {
  std::vector<bool> needed(roots_.size(), false);  // values, and the memory that they may share
  const auto need = [&](size_t value) { needed[value] = needed[root(value)] = true; };
  std::ranges::for_each(asked_, need);
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    const bool changes = node.writes && needed[root(*node.writes)];
    node.skipped = !changes && !needed[value_of(i)];
    if (!node.skipped) each_value(node, need);
  }
}

void ExportedGraph::find_readers() {
  readers_.assign(roots_.size(), {});
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].dies.clear();
    if (!nodes_[i].skipped) each_value(nodes_[i], [&](size_t value) { readers_[value].push_back(i); });
  }
  for (const size_t value : asked_) readers_[value].push_back(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::vector<size_t>& readers = readers_[value_of(i)];
    if (const size_t last = readers.empty() ? i : readers.back(); last < nodes_.size())
      nodes_[last].dies.push_back(value_of(i));
  }
}

std::optional<size_t> ExportedGraph::only_reader(size_t value) const {
  const std::vector<size_t>& readers = readers_[value];
  return readers.size() == 1 && readers[0] < nodes_.size() ? std::optional(readers[0]) : std::nullopt;
}

ExportedGraph::Values ExportedGraph::begin(const std::vector<at::Tensor>& tensors,
                                           const at::Tensor& images) const {
  Values values(tensors.begin(), tensors.end());
  const bool changed = std::ranges::any_of(nodes_, [&](const Node& node) {
    return !node.skipped && node.writes && root(*node.writes) == images_;
  });
  values.emplace_back(changed ? images.clone() : images);  // a batch stays as it is
  values.resize(roots_.size());
  return values;
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
      for (const Argument& argument : node.arguments) stack.push_back(filled(argument, values));
      values[value_of(i)] =
          node.instead  ? node.instead(stack, pass)
          : node.handle ? called(node, stack)
                        : on_sizes(node.op.substr(4), stack[0], stack.size() > 1 ? stack[1] : IValue());
    }
    for (const size_t value : node.dies) values[value] = IValue();
  }
}

void NormPlace::look_behind(std::set<size_t>& taken) {
  const std::vector<Node>& nodes = graph->nodes();
  const std::optional<size_t> x = nodes[node].arguments[0].value;
  std::optional<size_t> next = graph->only_reader(graph->value_of(node));
  if (next && is_one_of(nodes[*next].op, {"aten::add.Tensor", "aten::add_.Tensor"}) &&
      !taken.contains(*next)) {
    const Node& sum = nodes[*next];
    const bool first = sum.arguments[0].value == graph->value_of(node);
    const std::optional<size_t> other = sum.arguments[first ? 1 : 0].value;
    const IValue& alpha = sum.arguments[2].constant;
    // Of an addition in place the other operand changes, which somebody may read.
    if (!sum.like || !alpha.isInt() || alpha.toInt() != 1 || !other || (!first && sum.writes) ||
        changed(x, *next))
      return;
    taken.insert(*next);
    add = next;
    residual = sum.arguments[first ? 1 : 0];
    next = graph->only_reader(graph->value_of(*add));
    if (next && changed(other, *next)) return;
  }
  if (next && is_one_of(nodes[*next].op, {"aten::relu", "aten::relu_"}) && !changed(x, *next)) relu = next;
}

bool NormPlace::changed(std::optional<size_t> value, size_t end) const {
  for (size_t i = add.value_or(node) + 1; i < end; ++i) {
    const Node& between = graph->nodes()[i];
    if (value && !between.skipped && between.writes && graph->root(*between.writes) == graph->root(*value))
      return true;
  }
  return false;
}

ExportedBlocks::ExportedBlocks(const ExportedGraph& graph) : graph_(graph) {
  std::set<size_t> live, read;  // of the block under way: what is read behind it, and what it reads
  bool site = false, kept = false;
  size_t first = 0;
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (!node.skipped) {
      each_value(node, [&](size_t value) { read.insert(value); });
      if (!is_size(node)) live.insert(graph_.value_of(i));
      site = site || node.site;
      kept = kept ||
             (node.writes && graph_.root(*node.writes) < graph_.value_of(first));  // twice would be wrong
    }
    for (const size_t value : node.dies) live.erase(value);
    const bool last = i + 1 == graph_.nodes().size();
    const bool cut = site && live.size() == 1 && makes_a_tensor(node_of(*live.begin()));
    if (!cut && !last) continue;
    Block block{
        .first = first, .last = i + 1, .output = cut && !kept ? std::optional(*live.begin()) : std::nullopt};
    for (const size_t value : read)
      if (value >= graph_.images() && value < graph_.value_of(first) &&
          (value == graph_.images() || !is_size(node_of(value))))
        block.inputs.push_back(value);
    blocks_.push_back(std::move(block));
    live.clear();
    read.clear();
    site = kept = false;
    first = i + 1;
  }
}

const Node& ExportedBlocks::node_of(size_t value) const {
  return graph_.nodes()[value - graph_.value_of(0)];
}

void ExportedBlocks::run(ExportedGraph::Values& values, const Pass& pass) const {
  for (const Block& block : blocks_) {
    if (!block.output) {
      graph_.run(values, block.first, block.last, pass);
      continue;
    }
    // Weights and sizes are there in both passes; the first one adds the sizes that it finds.
    ExportedGraph::Values constants = values;
    for (size_t v = graph_.images(); v < constants.size(); ++v)
      if (!constants[v].isScalar()) constants[v] = IValue();
    const auto inputs = mapped(block.inputs, [&](size_t value) { return values[value].toTensor(); });
    const auto forward = [this, &block, constants, found = &values](const std::vector<at::Tensor>& given,
                                                                    const Pass& inner) mutable {
      ExportedGraph::Values own = constants;
      for (size_t i = 0; i < given.size(); ++i) own[block.inputs[i]] = given[i];
      graph_.run(own, block.first, block.last, inner);
      for (size_t i = block.first; i < block.last && found != nullptr; ++i)
        if (is_size(graph_.nodes()[i])) (*found)[graph_.value_of(i)] = own[graph_.value_of(i)];
      found = nullptr;
      return own[*block.output].toTensor();
    };
    values[*block.output] = recomputed(inputs, pass, forward);
    for (size_t i = block.first; i < block.last; ++i)
      for (const size_t value : graph_.nodes()[i].dies) values[value] = IValue();
  }
}

}  // namespace bnlab
