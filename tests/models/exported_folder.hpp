// A small network as bnlab.export writes one, for tests: a stem, a residual block whose shortcut is computed
// after the norm that it is added to, dropout and a head for five classes.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "harness/models/exported_graph.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/json.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {

class ExportedFolder {
 public:
  // noise: with the dropout, whose masks are bnlab's own.
  explicit ExportedFolder(bool noise = true) : noise_(noise) {
    at::manual_seed(7);
    add("stem.conv.weight", at::randn({4, 3, 3, 3}) / 3);
    add_norm("stem.norm", 1e-3, 0.01);
    add("block.conv.weight", at::randn({4, 4, 3, 3}) / 4);
    add_norm("block.norm", 1e-5, 0.1);
    add("shortcut.conv.weight", at::randn({4, 4, 1, 1}) / 2);
    add_norm("shortcut.norm", 1e-5, 0.1);
    add("head.weight", at::randn({5, 4, 1, 1}));
    add("head.bias", at::randn({5}));
    for (const bool training : {true, false}) graph[training ? "train" : "evaluate"] = nodes(training);
  }

  // The path of the folder, with what stands in `graph` and `weights` now.
  std::string written() const {
    write_json(folder_.path() / kGraphFile, graph);
    write_safetensors((folder_.path() / "weights.safetensors").string(), weights);
    return folder_.path().string();
  }
  Json model() const { return {{"name", "exported"}, {"file", written()}}; }
  std::filesystem::path path() const { return folder_.path(); }

  // The nodes of a mode, and the number of a value by the place of its node.
  Json& nodes_of(const std::string& mode) { return graph[mode]["nodes"]; }
  int64_t images() const { return static_cast<int64_t>(weights.size()); }
  int64_t value(int64_t node) const { return images() + 1 + node; }
  at::Tensor weight(const std::string& name) const {
    for (const NamedTensor& each : weights)
      if (each.name == name) return each.tensor;
    throw std::logic_error("no weight " + name);
  }

  // Puts behind the block, in the place of its ReLU and dropout, an operator that waits for values: of the
  // four channels the largest of each pixel stays.
  void weigh_by_the_largest() {
    Json& nodes = nodes_of("train");
    const Json head = nodes.back();
    nodes.erase(nodes.begin() + 8, nodes.end());
    nodes.push_back(node("aten::argmax", {v(value(7)), 1, false}, "pick"));  // [images, height, width]
    nodes.push_back(node("aten::one_hot", {v(value(8)), 4}, "pick"));
    nodes.push_back(node("aten::permute", {v(value(9)), {0, 3, 1, 2}}, "pick"));
    nodes.push_back(node("aten::mul.Tensor", {v(value(7)), v(value(10))}, "pick"));
    nodes.push_back(head);
    nodes.back()["args"][0] = v(value(11));
    graph["train"]["outputs"][0]["value"] = value(12);
  }

  static Json node(const std::string& op, const Json& args, const std::string& module,
                   const Json& more = Json::object()) {
    Json node = {{"op", op}, {"args", args}, {"module", module}};
    node.update(more);
    return node;
  }
  static Json v(int64_t value) { return {{"v", value}}; }

  std::vector<NamedTensor> weights;
  Json graph = {{"version", 1},
                {"torch", "2.11.0"},
                {"dtype", "float32"},
                {"example", {2, 3, 12, 16}},
                {"tensors", Json::array()},
                {"sites", Json::array()},
                {"verified", Json::array({Json{{"shape", {2, 3, 12, 16}}}})},
                {"size_step", 1},
                {"fixed_size", ""},
                {"weights", Json::array({"weights.safetensors"})},
                {"initialisations", false}};

 private:
  void add(const std::string& name, const at::Tensor& tensor, bool parameter = true) {
    Json entry = {{"name", name},
                  {"kind", parameter ? "parameter" : "buffer"},
                  {"dtype", tensor.scalar_type() == at::kLong ? "int64" : "float32"},
                  {"shape", tensor.sizes().vec()}};
    if (parameter) entry["trained"] = true;
    graph["tensors"].push_back(entry);
    weights.push_back({name, tensor});
  }

  void add_norm(const std::string& name, double eps, double momentum) {
    add(name + ".weight", at::rand({4}) + 0.5);
    add(name + ".bias", at::randn({4}));
    add(name + ".running_mean", at::randn({4}), false);
    add(name + ".running_var", at::rand({4}) + 0.5, false);
    add(name + ".num_batches_tracked", at::full({}, 3, at::kLong), false);
    graph["sites"].push_back({{"name", name},
                              {"channels", 4},
                              {"eps", eps},
                              {"momentum", momentum},
                              {"affine", true},
                              {"trained", true}});
  }

  // Tensors: 0 a convolution, 1 to 5 its norm, 6, 7 to 11, 12, 13 to 17, and 18 and 19 of the head.
  Json nodes(bool training) const {
    const auto conv = [](int64_t x, int64_t weight, int64_t padding, const std::string& module) {
      const Json bias = module == "head" ? v(weight + 1) : Json();
      return node("aten::conv2d", {v(x), v(weight), bias, {1, 1}, {padding, padding}, {1, 1}, 1}, module);
    };
    const auto norm = [&](int64_t x, int64_t first, int64_t site) {
      const Json& of = graph["sites"][static_cast<size_t>(site)];
      return node("aten::batch_norm",
                  {v(x), v(first), v(first + 1), v(first + 2), v(first + 3), training, of["momentum"],
                   of["eps"], false},
                  of["name"].get<std::string>(), {{"site", site}});
    };
    Json nodes = {conv(images(), 0, 1, "stem.conv"),
                  norm(value(0), 1, 0),
                  node("aten::relu", Json::array({v(value(1))}), ""),
                  conv(value(2), 6, 1, "block.conv"),
                  norm(value(3), 7, 1),
                  conv(value(2), 12, 0, "shortcut.conv"),
                  norm(value(5), 13, 2),
                  node("aten::add_.Tensor", {v(value(4)), v(value(6)), 1}, "", {{"like", true}}),
                  node("aten::relu_", Json::array({v(value(7))}), "")};
    const bool draws = training && noise_;
    if (draws) nodes.push_back(node("aten::dropout", {v(value(8)), 0.25, true}, "drop"));
    nodes.push_back(conv(value(draws ? 9 : 8), 18, 0, "head"));
    const Json output = {{"name", ""}, {"value", value(draws ? 10 : 9)}, {"shape", {2, 5, 12, 16}}};
    return {{"nodes", nodes}, {"outputs", Json::array({output})}};
  }

  bool noise_;
  TemporaryFolder folder_;
};

}  // namespace bnlab
