// A graph of a PyTorch model, as bnlab.export wrote it (scripts/python/bnlab/export.py): read from
// graph.json, checked whole, and run through LibTorch's dispatcher, autograd included.
//
// Values are numbered: the tensors of the weights file, then the images, then one value a node. A node calls
// an operator of ATen with all arguments of its schema, or Python's arithmetic on sizes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/pass.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

constexpr const char* kGraphFile = "graph.json";

// graph.json of a folder. Throws Error (data) that names the file and the key where it cannot be read, or
// what stands in it beside the nodes is not what bnlab.export writes.
Json read_exported(const std::string& folder);

// One of a mode's outputs, by its name; "": the first.
const Json& output_named(const Json& exported, const std::string& mode, const std::string& name);

// All tensors of a safetensors file by their names. Whoever trains reads these files
// (training/safetensors.cpp).
std::map<std::string, at::Tensor> tensors_of_file(const std::string& file);

// Why the network cannot be given images of this size; "" where it can, by what the export has verified.
std::string size_misfit(const Json& exported, const std::array<int64_t, 2>& size);

class ExportedGraph {
 public:
  using Values = std::vector<c10::IValue>;

  // One argument of a call: a constant, a value of the graph, or a list of such.
  struct Argument {
    c10::IValue constant = {};
    std::optional<size_t> value = {};
    std::optional<std::vector<Argument>> list = {};
    c10::TypePtr type = {};  // what the operator takes here, or each item of the list is

    void each_value(const std::function<void(size_t value)>& visit) const;
    c10::IValue filled(const Values& values) const;
  };

  struct Node {
    std::string op;      // "aten::conv2d"
    std::string module;  // the path of the module that it was traced in
    std::vector<Argument> arguments = {};
    std::optional<c10::OperatorHandle> handle = {};  // none: arithmetic on sizes
    std::optional<size_t> site = {};                 // among the export's sites
    std::optional<size_t> writes = {};               // the value that it changes in place
    bool adds_alike = false;                         // two tensors of one shape
    bool grad = true;                                // false: stands in a region without gradients
    std::optional<std::pair<at::ScalarType, bool>> autocast = {};
    bool skipped = false;  // nothing that is asked for needs it, or another node does its work
    std::vector<size_t> dies = {};
    // What is done instead of calling the operator.
    std::function<c10::IValue(Values& arguments, const Pass& pass)> instead = {};

    bool is_one_of(std::initializer_list<const char*> ops) const;
    bool has_tag(at::Tag tag) const { return handle && handle->hasTag(tag); }
    bool draws() const;    // random numbers
    bool is_size() const;  // a number
    std::string named() const { return op + (module.empty() ? "" : " in " + module); }
    void each_value(const std::function<void(size_t value)>& visit) const;
  };

  // mode: "train" or "evaluate"; outputs: those that are asked for, by their names ("": the first); run: type
  // and device of the parameters. Throws Error (data) that names the node which is at fault.
  ExportedGraph(const Json& exported, const std::string& mode, const std::vector<std::string>& outputs,
                const at::TensorOptions& run);

  // What is asked for. Where the pass recomputes, it does so in blocks of nodes.
  std::vector<at::Tensor> answers(const std::vector<at::Tensor>& tensors, const at::Tensor& images,
                                  const Pass& pass) const;

  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  size_t images() const { return images_; }
  size_t value_of(size_t node) const { return images_ + 1 + node; }
  bool is_read(size_t value) const { return !readers_[value].empty(); }
  // The node that alone reads a value, and once.
  std::optional<size_t> only_reader(size_t value) const;
  // The node that alone reads what a node makes; nothing is changed in place before it.
  std::optional<size_t> follower(size_t node) const;

  // Finds again who reads each value; called once nodes have been given other arguments.
  void find_readers();

 private:
  // Ends at the first site behind which one tensor of the block is read later. Its activations can be
  // computed again in the backward pass (recomputation.hpp).
  struct Block {
    size_t first, last, output;
  };

  void add(const Json& json, size_t sites, const at::TensorOptions& run);
  void skip_what_nothing_needs();
  void find_blocks();
  void run(Values& values, size_t first, size_t last, const Pass& pass) const;
  void recompute(Values& values, const Block& block, const Pass& pass) const;

  std::vector<Node> nodes_;
  std::vector<size_t> asked_;
  size_t images_ = 0;
  at::Device device_;
  std::vector<size_t> roots_;                 // for each value the one whose memory it may share
  std::vector<std::vector<size_t>> readers_;  // nodes, and nodes_.size() of what is asked for
  std::vector<Block> blocks_;
};

}  // namespace bnlab
