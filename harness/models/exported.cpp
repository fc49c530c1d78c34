// exported: a network that was exported from PyTorch (bnlab.export, scripts/python/bnlab/export.py). Its
// batch norms are the norm sites, under the names of their modules; all else runs as PyTorch ran it. A ReLU
// or a residual addition that follows a site alone is computed by the site's layer, at the place where the
// last of its operands is there. A convolution whose weight nothing else reads is made by the strategy,
// too, which may standardise it.
//
// The whole graph belongs to the features, since its last site may stand anywhere; the head hands them on. A
// strategy that moves rows therefore brings back the answers.
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>

#include "harness/communicator/reason.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/exported_graph.hpp"
#include "harness/models/model.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"

namespace bnlab::exported {

using Argument = ExportedGraph::Argument;
using Node = ExportedGraph::Node;
using Values = ExportedGraph::Values;
using c10::IValue;

BNLAB_CHOICE(Numbers, own, strategy)

// A tensor's module and its name there.
std::pair<std::string, std::string> split(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::pair(std::string(), name)
                                  : std::pair(name.substr(0, dot), name.substr(dot + 1));
}

// graph.json is asked for facts in every cell of a matrix; it is read once, until it changes.
std::shared_ptr<const Json> description(const std::string& folder) {
  static std::mutex mutex;
  using Stamp = std::pair<std::filesystem::file_time_type, uintmax_t>;  // time and size
  static std::map<std::string, std::pair<Stamp, std::shared_ptr<const Json>>> known;
  const std::string file = folder + "/" + kGraphFile;
  std::error_code missing;  // read_exported says it
  const Stamp now{std::filesystem::last_write_time(file, missing), std::filesystem::file_size(file, missing)};
  const std::lock_guard lock(mutex);
  auto& [stamp, json] = known[folder];
  if (json == nullptr || missing || stamp != now) {
    json = std::make_shared<const Json>(read_exported(folder));
    stamp = now;
  }
  return json;
}

// Whatever is wrong with a folder is said with its name, also where the JSON library or LibTorch says it.
template <class Make>
auto of_folder(const std::string& folder, Make make) {
  try {
    return make();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    throw Error(own == nullptr ? Error::Kind::data : own->kind(),
                folder + ": " + (memory ? "its sizes need more memory than there is" : reason_of(error)));
  }
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Error::Kind::refused, why);
}

struct Options {
  std::string file;
  std::string output;
  std::string auxiliary;
  double auxiliary_weight = 0;
  Numbers numbers = Numbers::own;

  void describe(OptionVisitor& option) {
    option("file", file, "the folder that bnlab.export wrote: graph.json and its weights")
        .not_empty()
        .needed();
    option("output", output, "the output that is trained and evaluated, by its name; \"\": the first");
    option("auxiliary", auxiliary, "the output of an auxiliary head, by its name");
    option("auxiliary_weight", auxiliary_weight, "of its loss; 0: the head is left out").at_least(0);
    option("numbers", numbers,
           "whose eps and momentum hold at the sites: the network's own, or the strategy's");
  }

  ExportedGraph graph(const std::string& mode, const at::TensorOptions& run) const {
    std::vector<std::string> outputs = {output};
    if (mode == "train" && !auxiliary.empty()) outputs.push_back(auxiliary);
    const auto json = description(file);
    return of_folder(file, [&] { return ExportedGraph(*json, mode, outputs, run); });
  }

  void check(const RunOutline& run, Problems& problems) const {
    if (auxiliary.empty() != (auxiliary_weight == 0))
      problems.add("auxiliary", "auxiliary and auxiliary_weight need each other; give both, or neither");
    try {
      for (const char* mode : {"train", "evaluate"}) graph(mode, at::kFloat);  // refuses what cannot be run
      for (const auto& size : run.image_sizes)
        if (const std::string why = size_misfit(*description(file), size); !why.empty())
          problems.add("file", why);
    } catch (const std::exception& error) {
      problems.add("file", reason_of(error));
    }
  }

  // The shape of the answer to the example.
  std::vector<int64_t> answer() const {
    const auto json = description(file);
    return of_folder(file, [&] {
      const auto shape = output_named(*json, "evaluate", output).at("shape").get<std::vector<int64_t>>();
      if (shape.size() != 2 && shape.size() != 4)
        refuse("expected an output of [images, classes, height, width] or [images, classes], got one of " +
               shown(Json(shape)) + "; choose another");
      return shape;
    });
  }
  Labelled answers_for() const { return answer().size() == 4 ? Labelled::pixels : Labelled::images; }
  int64_t classes() const { return answer()[1]; }
  std::string folder() const { return file; }
  int64_t image_multiple() const {
    const auto json = description(file);
    const auto step = json->at("size_step").get<int64_t>();
    const auto example = json->at("example").get<std::array<int64_t, 4>>();
    return step > 0 && example[2] % step == 0 && example[3] % step == 0 ? step : 1;
  }
  Channels norm_channels() const {
    const auto json = description(file);
    std::set<int64_t> channels;
    for (const Json& site : json->at("sites")) channels.insert(site.at("channels").get<int64_t>());
    return Channels(channels.begin(), channels.end());
  }
  bool brings_weights() const { return !description(file)->at("initialisations").get<bool>(); }
};

// What a node that draws does instead: from bnlab's streams, for each image by itself.
std::function<IValue(Values&, const Pass&)> noise(const Node& node, const std::string& name) {
  const bool of_channels = node.op.starts_with("aten::feature_dropout");
  const bool drops = of_channels || node.op.starts_with("aten::dropout");
  const IValue given = node.arguments.size() > 1 ? node.arguments[1].constant : IValue();
  const double p = given.isScalar() ? given.toScalar().toDouble() : -1;
  if (p < 0 || p >= 1 || !(drops || node.is_one_of({"aten::bernoulli_.float", "aten::bernoulli.p"})))
    refuse(node.named() +
           ": noise can be dropout, or Bernoulli numbers of a fixed probability below 1; leave other noise "
           "out of the model and export it again");
  const Dropout what{.name = name, .probability = drops ? p : 1 - p, .whole_channels = of_channels};
  return [=, in_place = node.writes.has_value()](Values& a, const Pass& pass) -> IValue {
    const at::Tensor x = a[0].toTensor();
    const at::Tensor y =
        drops ? dropout(x, what, pass) : dropout(at::ones_like(x), what, pass).ne(0).to(x.scalar_type());
    return in_place ? x.copy_(y) : y;
  };
}

// A norm's node in a graph, and what follows it alone: an addition, a ReLU, or both in this order.
struct NormPlace {
  ExportedGraph& graph;
  size_t node;
  std::optional<size_t> add = {}, relu = {};
  Argument residual = {};

  NormPlace(ExportedGraph& in, size_t norm) : graph(in), node(norm) {
    std::optional<size_t> next = graph.follower(node);
    if (next && graph.nodes()[*next].adds_alike) {
      Node& sum = graph.nodes()[*next];
      const bool first = sum.arguments[0].value == graph.value_of(node);
      // Of an addition in place the other operand changes, which somebody may read.
      if (!first && sum.writes) return;
      sum.adds_alike = false;  // one of two norms computes it
      add = next;
      residual = sum.arguments[first ? 1 : 0];
      next = graph.follower(*add);
    }
    if (next && graph.nodes()[*next].is_one_of({"aten::relu", "aten::relu_"})) relu = next;
  }

  // The last of the nodes does the work of all.
  void compute_by(const std::shared_ptr<Layer>& layer, const NormSite& site) const {
    std::vector<Node>& nodes = graph.nodes();
    const size_t sum = add.value_or(node), last = site.activation == Activation::relu ? *relu : sum;
    const Argument x = nodes[node].arguments[0];
    for (const size_t merged : {node, sum, last}) nodes[merged].skipped = merged != last;
    std::swap(nodes[last].site, nodes[node].site);
    nodes[last].arguments = {x, residual};
    nodes[last].instead = [layer, name = site.name](Values& a, const Pass& pass) -> IValue {
      const at::Tensor x = a[0].toTensor();
      if (const int64_t rows = pass.towers.local_samples() * pass.rows_per_sample; x.size(0) != rows)
        refuse("site " + name + ": expected the " + std::to_string(rows) +
               " images in its first dimension, got " + std::to_string(x.size(0)));
      return layer->forward(x, a[1].isTensor() ? a[1].toTensor() : at::Tensor(), pass);
    };
  }
};

class ExportedNetwork : public Network {
 public:
  ExportedNetwork(LayerMaker& layers, const Options& options, int64_t classes, const Model::Context& context)
      : options_(options),
        exported_(description(options.file)),
        train_(options.graph("train", context.parameters)),
        evaluate_(options.graph("evaluate", context.parameters)) {
    const at::NoGradGuard no_grad;
    of_folder(options.file, [&] {
      read_tensors(context);
      draw_from_streams();
      make_sites(layers);
      make_convolutions(layers);
      register_tensors();
      check_answers(classes, context.parameters);
    });
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    if (const std::string why = size_misfit(*exported_, {images.size(2), images.size(3)}); !why.empty())
      refuse(options_.file + ": " + why);
    return (pass.as_in_training() ? train_ : evaluate_).answers(tensors_, images, pass);
  }

  Outputs head(const Maps& maps, const Pass&) override {
    if (maps.size() == 1) return {.logits = maps[0]};
    return {.logits = maps[0], .auxiliary = maps[1], .auxiliary_weight = options_.auxiliary_weight};
  }

  bool trainable(const std::string& parameter) const override { return !frozen_.contains(parameter); }
  bool brings_statistics() const override { return true; }

  std::string why_not_replayed() const override {
    for (const Node& node : train_.nodes())
      if (!node.skipped &&
          (node.has_tag(at::Tag::dynamic_output_shape) || node.has_tag(at::Tag::data_dependent_output)))
        return node.named() + " may wait for the values of a tensor";
    return "";
  }

  std::vector<std::string> notes() const override {
    return {"exported from PyTorch " + exported_->at("torch").get<std::string>() +
            (options_.brings_weights() ? ": all seeds start from the weights that came along"
                                       : ": each seed starts from an initialisation of its own")};
  }

 private:
  const Json& tensor(size_t i) const { return exported_->at("tensors").at(i); }
  std::string name_of(size_t i) const { return tensor(i).at("name").get<std::string>(); }
  bool trained(size_t i) const { return tensor(i).value("trained", false); }

  void read_tensors(const Model::Context& context) {
    const Json& files = exported_->at("weights");
    const uint64_t place = options_.brings_weights() ? 0 : context.seed;
    if (place >= files.size())
      refuse("has initialisations for " + std::to_string(files.size()) + " seeds, got seed " +
             std::to_string(place) + "; export with more seeds");
    const auto file = files.at(place).get<std::string>();
    if (file.find('/') != std::string::npos) refuse("expected weights beside graph.json, got " + shown(file));
    const std::map<std::string, at::Tensor> read = tensors_of_file(options_.file + "/" + file);
    for (size_t i = 0; i < exported_->at("tensors").size(); ++i) {
      const auto found = read.find(name_of(i));
      const Json& shape = tensor(i).at("shape");
      if (found == read.end() || Json(found->second.sizes().vec()) != shape)
        refuse(file + " lacks " + name_of(i) + " of shape " + shown(shape));
      const Json& type = tensor(i).at("dtype");
      const auto own = type == exported_->at("dtype")
                           ? c10::typeMetaToScalarType(context.parameters.dtype())
                           : c10::getStringToDtypeMap().at(type.get<std::string>());
      tensors_.push_back(found->second.to(context.parameters.device(), own));
    }
  }

  void draw_from_streams() {
    std::map<std::string, int> drawn;
    for (ExportedGraph* graph : {&train_, &evaluate_})
      for (Node& node : graph->nodes()) {
        if (node.skipped || !node.draws()) continue;
        if (graph == &evaluate_) refuse(node.named() + " draws random numbers in evaluation, too");
        const int before = drawn[node.module]++;
        node.instead = noise(node, node.module + (before == 0 ? "" : "/" + std::to_string(before)));
      }
  }

  // In the order of the export, a module that computes twice once. What training has no use for is no site.
  void make_sites(LayerMaker& layers) {
    std::map<size_t, std::vector<NormPlace>> places;
    for (ExportedGraph* graph : {&train_, &evaluate_})
      for (size_t i = 0; i < graph->nodes().size(); ++i)
        if (const Node& node = graph->nodes()[i];
            node.site && !node.skipped && (graph == &train_ || places.contains(*node.site)))
          places[*node.site].emplace_back(*graph, i);
    for (const auto& [number, all] : places) {
      const Json& given = exported_->at("sites").at(number);
      NormSite site{.name = given.at("name").get<std::string>(),
                    .channels = given.at("channels").get<int64_t>(),
                    .affine = given.at("affine").get<bool>()};
      if (std::ranges::all_of(all, [](const NormPlace& place) { return place.relu.has_value(); }))
        site.activation = Activation::relu;
      if (options_.numbers == Numbers::own) {
        site.eps = given.at("eps").get<double>();
        site.momentum = given.at("momentum").get<double>();
      }
      const std::shared_ptr<Layer> layer = register_layer(site.name, layers.norm(site));
      for (const NormPlace& place : all) place.compute_by(layer, site);
    }
    for (ExportedGraph* graph : {&train_, &evaluate_}) graph->find_readers();
  }

  // Whether a node is a convolution of two dimensions whose trained weight and bias nothing else reads.
  bool is_own_convolution(const ExportedGraph& graph, size_t i) const {
    const Node& node = graph.nodes()[i];
    if (!node.is_one_of({"aten::conv2d", "aten::conv2d.padding"}) || !node.grad) return false;
    const std::optional<size_t> weight = node.arguments[1].value, bias = node.arguments[2].value;
    const auto own = [&](size_t value) {
      return value < graph.images() && graph.only_reader(value) == i && trained(value);
    };
    size_t read = 0;  // x, the weight and the bias alone
    node.each_value([&](size_t) { ++read; });
    if (!weight || !own(*weight) || (bias && !own(*bias)) || read != (bias ? 3u : 2u)) return false;
    const auto [module, name] = split(name_of(*weight));
    return name == "weight" && (!bias || name_of(*bias) == path(module, "bias"));
  }

  void make_convolutions(LayerMaker& layers) {
    for (size_t i = 0; i < train_.nodes().size(); ++i) {
      if (!is_own_convolution(train_, i)) continue;
      Node& node = train_.nodes()[i];
      const size_t weight = *node.arguments[1].value;
      const std::optional<size_t> twin = evaluate_.only_reader(weight);
      if (twin ? !is_own_convolution(evaluate_, *twin) : evaluate_.is_read(weight)) continue;
      const std::optional<size_t> next = train_.only_reader(train_.value_of(i));
      ConvSite site{.name = split(name_of(weight)).first,
                    .in = tensors_[weight].size(1),
                    .out = tensors_[weight].size(0),
                    .norm_follows = next && train_.nodes()[*next].site &&
                                    train_.nodes()[*next].arguments[0].value == train_.value_of(i),
                    .bias = node.arguments[2].value.has_value(),
                    .weight = tensors_[weight]};
      const auto filled = [](const Argument& argument) { return argument.filled({}); };
      site.compute = [handle = *node.handle, rest = mapped(std::span(node.arguments).subspan(3), filled)](
                         const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
        Values stack = {x, w, b.defined() ? IValue(b) : IValue()};
        stack.insert(stack.end(), rest.begin(), rest.end());
        handle.callBoxed(stack);
        return stack[0].toTensor();
      };
      node.instead = [layer = register_layer(site.name, layers.conv(site))](Values& a,
                                                                            const Pass& pass) -> IValue {
        return layer->forward(a[0].toTensor(), {}, pass);
      };
      if (twin) evaluate_.nodes()[*twin].instead = node.instead;
    }
  }

  // The module at a path, with those on the way.
  torch::nn::Module& module_at(const std::string& path) {
    if (path.empty()) return *this;
    const auto [above, name] = split(path);
    torch::nn::Module& owner = module_at(above);
    for (const auto& known : owner.named_children())
      if (known.key() == name) return *known.value();
    return *owner.register_module(name, std::make_shared<torch::nn::Module>());
  }

  std::shared_ptr<Layer> register_layer(const std::string& path, const std::shared_ptr<Layer>& layer) {
    const auto [above, name] = split(path);
    layers_.insert(path);
    return module_at(above).register_module(name, layer);
  }

  // Under the names of the model's state_dict. A layer's own tensors begin as those of the file; what the
  // file has for a layer that the strategy has no use for, such as running statistics, is left.
  void register_tensors() {
    const std::set<std::string> of_layers = {"weight", "bias", "running_mean", "running_var"};
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Json& kind = tensor(i).at("kind");
      if (kind == "constant" || !tensors_[i].is_floating_point()) continue;  // nothing trains these
      const auto [path, name] = split(name_of(i));
      torch::nn::Module& module = module_at(path);
      const auto parameters = module.named_parameters(false), buffers = module.named_buffers(false);
      const at::Tensor* own = parameters.contains(name) ? parameters.find(name) : buffers.find(name);
      if (own != nullptr && own->sizes() == tensors_[i].sizes()) {
        tensors_[i] = own->copy_(tensors_[i]);
        if (kind == "parameter" && !trained(i)) frozen_.insert(name_of(i));
      } else if (!layers_.contains(path) || !of_layers.contains(name)) {
        tensors_[i] = trained(i) && train_.is_read(i) ? module.register_parameter(name, tensors_[i])
                                                      : module.register_buffer(name, tensors_[i]);
      }
    }
  }

  // Two images of the example's size, with saved statistics and without noise: the answers must have the
  // task's shape, and be those of each image alone.
  void check_answers(int64_t classes, const at::TensorOptions& run) {
    const auto example = exported_->at("example").get<std::array<int64_t, 4>>();
    if (example[1] != 3)
      refuse("expected a network of images with 3 channels, got an example of " + shown(Json(example)));
    Stream stream(0, "exported");
    std::vector<double> numbers(static_cast<size_t>(2 * 3 * example[2] * example[3]));
    std::ranges::generate(numbers, [&] { return stream.normal(); });
    const at::Tensor images = at::tensor(numbers).view({2, 3, example[2], example[3]}).to(run);
    for (const ExportedGraph* graph : {&train_, &evaluate_}) {
      const auto answer = [&](int64_t first, int64_t count) {
        const Batch batch{images.narrow(0, first, count), {}, Towers({count}, 1, 0)};
        return graph->answers(tensors_, batch.images, batch.pass({}, Mode::evaluate_saved))[0];
      };
      const at::Tensor both = answer(0, 2);
      std::vector<int64_t> expected = {2, classes};
      if (both.dim() != 2) expected.insert(expected.end(), {example[2], example[3]});
      if (both.sizes() != at::IntArrayRef(expected))
        refuse("expected answers of shape " + shown(Json(expected)) + " for two images, got " +
               shown(Json(both.sizes().vec())) + "; choose another output, or export a model of " +
               std::to_string(classes) + " classes");
      const at::Tensor apart = at::cat({answer(0, 1), answer(1, 1)});
      if ((both - apart).abs().max().item<double>() > 1e-3 * std::max(both.abs().max().item<double>(), 1e-6))
        refuse("the answer for one image depends on the others in its batch, even with frozen norms");
    }
  }

  Options options_;
  std::shared_ptr<const Json> exported_;
  ExportedGraph train_, evaluate_;
  std::vector<at::Tensor> tensors_;  // as the export numbers them
  std::set<std::string> layers_;     // paths of the strategy's
  std::set<std::string> frozen_;     // parameters of layers that the model has frozen
};

const Registered<Model> entry{{.name = "exported",
                               .summary = "a network of PyTorch, as bnlab.export wrote it",
                               .source = "torch.export (PyTorch 2.8 and newer)"},
                              make<Model, ModelOf<ExportedNetwork, Options>>};

}  // namespace bnlab::exported
