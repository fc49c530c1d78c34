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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/json.hpp"
#include "harness/pass.hpp"

namespace bnlab {

constexpr const char* kGraphFile = "graph.json";

// graph.json of a folder. Throws Error (data) that names the file where it cannot be read, is no JSON or of
// another version, or lacks something.
Json read_exported(const std::string& folder);

// Why the network cannot be given images of this size: "" where the export has verified it, or no guard of
// the tracing speaks against it.
std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size);

class ExportedGraph {
 public:
  using Values = std::vector<c10::IValue>;

  // One argument of a call: a constant, a value of the graph, or a list of such.
  struct Argument {
    c10::IValue constant = {};
    int64_t value = -1;
    bool is_list = false;
    std::vector<Argument> items = {};
    c10::TypeKind kind = c10::TypeKind::AnyType;  // what the operator takes here, or each item is
    bool optional = false;
  };

  struct Node {
    std::string op;      // "aten::conv2d"
    std::string module;  // the path of the module that it was traced in
    std::vector<Argument> arguments = {};
    std::optional<c10::OperatorHandle> handle = {};  // none: arithmetic on sizes
    int64_t site = -1;                               // of the export's sites
    std::optional<int64_t> random = {};  // rows that it draws for each image; 0: one draw, the same for all
    int64_t writes = -1;                 // the value that it changes in place
    bool like = false;                   // of an addition: both operands have one shape
    bool grad = true;                    // false: stands in a region without gradients
    std::optional<std::pair<at::ScalarType, bool>> autocast = {};
    bool skipped = false;  // nothing that is asked for needs it, or another node does its work
    std::vector<int64_t> dies = {};
    // What is done instead of calling the operator.
    std::function<c10::IValue(Values& arguments, const Pass& pass)> instead = {};
  };

  struct Output {
    std::string name;  // "" of a model that answers with one tensor, "out", "0"
    int64_t value = -1;
    std::vector<int64_t> shape = {};  // at the example
  };

  // mode: "train" or "evaluate"; run: type and device of the parameters. Throws Error (data) that names the
  // node which is at fault.
  ExportedGraph(const Json& exported, const std::string& mode, const at::TensorOptions& run);

  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  int64_t images() const { return images_; }
  int64_t value_of(size_t node) const { return images_ + 1 + static_cast<int64_t>(node); }
  // The value whose memory this one may share.
  int64_t root(int64_t value) const { return roots_[static_cast<size_t>(value)]; }
  bool depends_on_images(int64_t value) const { return depends_[static_cast<size_t>(value)]; }

  // Leaves out what these values do not need; called before any node is given other arguments.
  void keep(const std::vector<int64_t>& asked);
  // How many nodes and asked values read each value.
  std::vector<int64_t> readers(const std::vector<int64_t>& asked) const;
  // Says when each value is read last; called once all nodes have their final arguments.
  void finish(const std::vector<int64_t>& asked);

  // The values at the beginning, of which the tensors are `tensors`.
  Values begin(const std::vector<at::Tensor>& tensors, const at::Tensor& images) const;
  // Nodes [first, last).
  void run(Values& values, size_t first, size_t last, const Pass& pass) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
  int64_t images_ = 0;
  std::vector<int64_t> roots_;
  std::vector<bool> depends_;
};

// The values that an argument reads, in its order.
void each_value(const ExportedGraph::Argument& argument, const std::function<void(int64_t value)>& visit);

}  // namespace bnlab
