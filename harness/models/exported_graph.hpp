// A graph of a PyTorch model, as bnlab.export wrote it (scripts/python/bnlab/export.py): read from graph.json,
// checked whole, and run through LibTorch's dispatcher, autograd included.
//
// Values are numbered: the tensors of the weights file, then the images, then one value a node. A node calls
// an operator of ATen with all arguments of its schema, or Python's arithmetic on sizes. Which operators there
// may be stands in a list: the dispatcher also knows some that open files or change what others hold.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/json.hpp"
#include "harness/pass.hpp"

namespace bnlab {

constexpr const char* kGraphFile = "graph.json";

// graph.json of a folder. Throws Error (data) that names the file where it cannot be read, is no JSON or of
// another version.
Json read_exported(const std::string& folder);

// All tensors of a safetensors file by their names. Whoever trains reads these files (training/safetensors.cpp).
std::map<std::string, at::Tensor> tensors_of_file(const std::string& file);

// Why the network cannot be given images of this size; "" where it can, by what the export has verified.
std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size);

bool is_one_of(const std::string& op, std::initializer_list<const char*> names);

class ExportedGraph {
 public:
  using Values = std::vector<c10::IValue>;

  // One argument of a call: a constant, a value of the graph, or a list that has such values.
  struct Argument {
    c10::IValue constant = {};
    std::optional<size_t> value = {};
    std::vector<Argument> items = {};
    c10::TypePtr type = {};  // what the operator takes here, or each item is
  };

  struct Node {
    std::string op;      // "aten::conv2d"
    std::string module;  // the path of the module that it was traced in
    std::vector<Argument> arguments = {};
    std::optional<c10::OperatorHandle> handle = {};  // none: arithmetic on sizes
    std::optional<size_t> site = {};                 // of the export's sites
    std::optional<int64_t> random = {};              // rows that it draws for each image; 0: one draw for all
    std::optional<size_t> writes = {};               // the value that it changes in place
    bool like = false;                               // of an addition: both operands have one shape
    bool grad = true;                                // false: stands in a region without gradients
    std::optional<std::pair<at::ScalarType, bool>> autocast = {};
    bool skipped = false;  // nothing that is asked for needs it, or another node does its work
    std::vector<size_t> dies = {};
    // What is done instead of calling the operator.
    std::function<c10::IValue(Values& arguments, const Pass& pass)> instead = {};

    std::string named() const { return op + (module.empty() ? "" : " in " + module); }
  };

  // mode: "train" or "evaluate"; outputs: those that are asked for, by their names ("": the first); run: type
  // and device of the parameters. Throws Error (data) that names the node which is at fault.
  ExportedGraph(const Json& exported, const std::string& mode, const std::vector<std::string>& outputs,
                const at::TensorOptions& run);

  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<size_t>& asked() const { return asked_; }
  size_t images() const { return images_; }
  size_t value_of(size_t node) const { return images_ + 1 + node; }
  // The value whose memory this one may share.
  size_t root(size_t value) const { return roots_[value]; }
  bool is_read(size_t value) const { return !readers_[value].empty(); }
  // The node that alone reads a value, and once.
  std::optional<size_t> only_reader(size_t value) const;

  // Says again who reads each value, and when last; called once nodes have been given other arguments.
  void find_readers();

  // Nodes [0, end) for these tensors, or [first, last) for values that are there already.
  Values begin(const std::vector<at::Tensor>& tensors, const at::Tensor& images) const;
  void run(Values& values, size_t first, size_t last, const Pass& pass) const;

 private:
  Node read(const Json& json, const Json& exported, const at::TensorOptions& run) const;
  void skip_what_nothing_needs();

  std::vector<Node> nodes_;
  std::vector<size_t> asked_;
  size_t images_ = 0;
  at::Device device_;
  std::vector<size_t> roots_;
  std::vector<std::vector<size_t>> readers_;  // nodes, and nodes_.size() of what is asked for
};

// A norm's node in a graph, and what follows it alone: an addition, a ReLU, or both in this order.
struct NormPlace {
  ExportedGraph* graph;
  size_t node;
  std::optional<size_t> add = {}, relu = {};
  ExportedGraph::Argument residual = {};

  // taken: additions that other sites compute.
  void look_behind(std::set<size_t>& taken);

 private:
  // Whether a node between the norm, or the addition, and `end` changes the memory of a value.
  bool changed(std::optional<size_t> value, size_t end) const;
};

// The parts of a training graph, each of which ends at the first site behind which one tensor of it is read later.
// Their activations are computed again in the backward pass (recomputation.hpp). `graph` outlives the object.
class ExportedBlocks {
 public:
  explicit ExportedBlocks(const ExportedGraph& graph);
  void run(ExportedGraph::Values& values, const Pass& pass) const;

 private:
  struct Block {
    size_t first, last;
    std::vector<size_t> inputs = {};    // tensors that the part before it has made
    std::optional<size_t> output = {};  // none: its activations are kept
  };
  const ExportedGraph::Node& node_of(size_t value) const;

  const ExportedGraph& graph_;
  std::vector<Block> blocks_;
};

// The values that a node or an argument reads, in its order.
void each_value(const ExportedGraph::Argument& argument, const std::function<void(size_t value)>& visit);
void each_value(const ExportedGraph::Node& node, const std::function<void(size_t value)>& visit);

}  // namespace bnlab
