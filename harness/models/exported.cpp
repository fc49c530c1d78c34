// exported: a network that was exported from PyTorch (bnlab.export, scripts/python/bnlab/export.py). Its
// batch norms are the norm sites, under the names of their modules; all else runs as PyTorch ran it. A ReLU or
// a residual addition that follows a site alone is computed by the site's layer, at the place where the last of
// its operands is there. A convolution whose weight nothing else reads is made by the strategy, too, which may
// standardise it.
//
// The whole graph belongs to the features, since its last site may stand anywhere; the head hands them on. A
// strategy that moves rows therefore brings back the answers.
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>

#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/exported_graph.hpp"
#include "harness/models/model.hpp"
#include "harness/random.hpp"
#include "harness/strategy.hpp"

namespace bnlab::exported {

using Argument = ExportedGraph::Argument;
using Node = ExportedGraph::Node;
using Values = ExportedGraph::Values;
using c10::IValue;

BNLAB_CHOICE(Numbers, own, strategy)

// What is done with graph.json, where a damaged one throws exceptions of the JSON library and of LibTorch, too.
template <class Function>
auto of_file(const std::string& folder, Function function) {
  const auto unusable = [&](const std::string& why) {
    return Error(Error::Kind::data,
                 folder + "/" + kGraphFile + ": damaged, or not written by bnlab.export: " + why);
  };
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw unusable(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw unusable(error.what());
  }
}

// graph.json is asked for facts in every cell of a matrix; it is read once, until it changes.
std::shared_ptr<const Json> description(const std::string& folder) {
  using Read = std::pair<std::filesystem::file_time_type, std::shared_ptr<const Json>>;
  static std::mutex mutex;
  static std::map<std::string, Read> known;
  std::error_code missing;  // read_exported says it
  const auto written = std::filesystem::last_write_time(folder + "/" + kGraphFile, missing);
  const std::lock_guard lock(mutex);
  Read& read = known[folder];
  if (read.second == nullptr || missing || read.first != written)
    read = {written, std::make_shared<const Json>(read_exported(folder))};
  return read.second;
}

struct Options {
  std::string file;
  std::string output;
  std::string auxiliary;
  double auxiliary_weight = 0;
  Numbers numbers = Numbers::own;
  int64_t multiple_of = 1;

  void describe(OptionVisitor& option) {
    option("file", file, "the folder that bnlab.export wrote: graph.json and its weights")
        .not_empty()
        .needed();
    option("output", output, "the output that is trained and evaluated, by its name; \"\": the first");
    option("auxiliary", auxiliary, "the output of an auxiliary head, by its name");
    option("auxiliary_weight", auxiliary_weight, "of its loss; 0: the head is left out").at_least(0);
    option("numbers", numbers,
           "whose eps and momentum hold at the sites: the network's own, or the strategy's");
    option("multiple_of", multiple_of, "what heights and widths must be multiples of").at_least(1);
  }

  template <class Answer>
  auto said(Answer answer) const {
    return of_file(file, [&] { return answer(*description(file)); });
  }

  void check(const RunOutline& run, Problems& problems) const {
    if (auxiliary.empty() != (auxiliary_weight == 0))
      problems.add("auxiliary", "auxiliary and auxiliary_weight need each other; give both, or neither");
    try {
      said([&](const Json& exported) {
        for (const char* mode : {"train", "evaluate"})
          ExportedGraph(exported, mode, {""}, at::kFloat);  // which refuses what cannot be run
        const std::vector<std::string> names =
            mapped(exported.at("train").at("outputs"),
                   [](const Json& each) { return each.at("name").get<std::string>(); });
        for (const auto& [key, name] : {std::pair("output", output), std::pair("auxiliary", auxiliary)})
          if (!name.empty() && std::ranges::find(names, name) == names.end())
            problems.add(
                key, "expected one of the network's outputs, " + shown(Json(names)) + ", got " + shown(name));
        for (const auto& size : run.image_sizes)
          if (const std::string misfit = size_misfit(exported, size); !misfit.empty())
            problems.add("file", misfit);
        return 0;
      });
    } catch (const Error& error) {
      problems.add("file", error.what());
    }
  }

  std::string folder() const { return file; }
  int64_t image_multiple() const { return multiple_of; }
  Channels norm_channels() const {
    return said([&](const Json& exported) {
      std::set<int64_t> channels;
      for (const Json& site : exported.at("sites")) channels.insert(site.at("channels").get<int64_t>());
      return Channels(channels.begin(), channels.end());
    });
  }
  // The shape of the answer for the example.
  std::vector<int64_t> answer() const {
    return said([&](const Json& exported) {
      const Json& outputs = exported.at("evaluate").at("outputs");
      const auto named =
          std::ranges::find_if(outputs, [&](const Json& each) { return each.at("name") == output; });
      return (named == outputs.end() ? outputs.at(0) : *named).at("shape").get<std::vector<int64_t>>();
    });
  }
  Labelled answers_for() const { return answer().size() == 4 ? Labelled::pixels : Labelled::images; }
  MadeFor made_for() const {
    return said([&](const Json& exported) {
      const auto example = exported.at("example").get<std::vector<int64_t>>();
      return MadeFor{.classes = answer().at(1), .image_size = {example.at(2), example.at(3)}};
    });
  }
  bool brings_weights() const {
    return said([](const Json& exported) { return !exported.at("initialisations").get<bool>(); });
  }
};

// What a node that draws does instead: from bnlab's streams, for each image by itself.
std::function<IValue(Values&, const Pass&)> noise(const Node& node, const std::string& name) {
  const bool of_channels = node.op.starts_with("aten::feature_dropout");
  const bool drops = of_channels || node.op.starts_with("aten::dropout");
  const bool draws = node.op == "aten::bernoulli_.float" || node.op == "aten::bernoulli.p";
  const IValue given = node.arguments.size() > 1 ? node.arguments[1].constant : IValue();
  const double p = given.isScalar() ? given.toScalar().toDouble() : -1;
  if (node.random != 1 || !(drops || draws) || p < 0 || (drops ? p >= 1 : p <= 0)) {
    throw Error(Error::Kind::refused,
                node.named() +
                    ": noise can be dropout, or Bernoulli numbers of a fixed probability, "
                    "drawn for each image by itself");
  }
  const Dropout what{.name = name, .probability = drops ? p : 1 - p, .whole_channels = of_channels};
  return [=, in_place = node.writes.has_value()](Values& a, const Pass& pass) -> IValue {
    const at::Tensor x = a[0].toTensor();
    const at::Tensor y =
        drops ? dropout(x, what, pass) : dropout(at::ones_like(x), what, pass).ne(0).to(x.scalar_type());
    return in_place ? x.copy_(y) : y;
  };
}

class ExportedNetwork : public Network {
 public:
  ExportedNetwork(LayerMaker& layers, const Options& options, int64_t classes, const Model::Context& context)
      : options_(options),
        exported_(description(options.file)),
        train_(graph("train", context)),
        evaluate_(graph("evaluate", context)) {
    const at::NoGradGuard no_grad;
    of_file(options.file, [&] {
      read_tensors(context);
      for (ExportedGraph* graph : {&train_, &evaluate_}) draw_from_streams(*graph);
      make_sites(layers);
      make_convolutions(layers);
      register_tensors();
      blocks_.emplace(train_);
      check_answers(classes, context);
    });
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    return answers(pass.as_in_training() ? train_ : evaluate_, images, pass);
  }

  Outputs head(const Maps& maps, const Pass&) override {
    Outputs outputs{.logits = maps[0]};
    if (maps.size() > 1) {
      outputs.auxiliary = maps[1];
      outputs.auxiliary_weight = options_.auxiliary_weight;
    }
    return outputs;
  }

  bool trainable(const std::string& parameter) const override { return !frozen_.contains(parameter); }
  bool brings_statistics() const override { return true; }

  // Sizes that follow from the values of a tensor.
  std::string why_not_replayed() const override {
    for (const Node& node : train_.nodes()) {
      const bool by_values =
          node.op == "aten::index.Tensor" &&
          std::ranges::any_of(node.arguments[1].items, [&](const Argument& i) {
            return i.value >= train_.images() || (i.value && tensors_[*i.value].scalar_type() == at::kBool);
          });
      if (!node.skipped &&
          (by_values || is_one_of(node.op, {"aten::repeat_interleave.Tensor", "aten::one_hot"})))
        return node.named() + " may wait for the values of a tensor";
    }
    return "";
  }

  std::vector<std::string> notes() const override {
    return {"exported from PyTorch " + exported_->at("torch").get<std::string>() +
            (exported_->at("initialisations").get<bool>()
                 ? ": each seed starts from an initialisation of its own"
                 : ": all seeds start from the weights that came along")};
  }

 private:
  ExportedGraph graph(const std::string& mode, const Model::Context& context) const {
    std::vector<std::string> outputs = {options_.output};
    if (mode == "train" && !options_.auxiliary.empty()) outputs.push_back(options_.auxiliary);
    return of_file(options_.file,
                   [&] { return ExportedGraph(*exported_, mode, outputs, context.parameters); });
  }

  const Json& tensor(size_t i) const { return exported_->at("tensors").at(i); }
  std::string name_of(size_t i) const { return tensor(i).at("name").get<std::string>(); }
  bool trained(size_t i) const { return tensor(i).value("trained", false); }
  // A tensor's module and its name there.
  std::pair<std::string, std::string> split(const std::string& name) const {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? std::pair(std::string(), name)
                                    : std::pair(name.substr(0, dot), name.substr(dot + 1));
  }

  void read_tensors(const Model::Context& context) {
    const Json& files = exported_->at("weights");
    const bool by_seed = exported_->at("initialisations").get<bool>();
    if (by_seed && context.seed >= files.size()) {
      throw Error(Error::Kind::refused, options_.file + " has initialisations for the seeds 0 to " +
                                            std::to_string(files.size() - 1) + ", got seed " +
                                            std::to_string(context.seed) + "; export with more seeds");
    }
    const auto plain = files.at(by_seed ? context.seed : 0).get<std::string>();
    if (plain.find('/') != std::string::npos)
      throw Error(Error::Kind::data,
                  options_.file + ": expected weights beside graph.json, got " + shown(plain));
    const std::string file = options_.file + "/" + plain;
    const std::map<std::string, at::Tensor> read = tensors_of_file(file);
    for (size_t i = 0; i < exported_->at("tensors").size(); ++i) {
      const auto found = read.find(name_of(i));
      const auto shape = tensor(i).at("shape").get<std::vector<int64_t>>();
      if (found == read.end() || found->second.sizes() != at::IntArrayRef(shape))
        throw Error(Error::Kind::data,
                    file + ": lacks " + name_of(i) + " of shape " + shown(tensor(i).at("shape")));
      const bool follows = tensor(i).at("dtype") == exported_->at("dtype");  // the run's type
      const at::ScalarType own = c10::getStringToDtypeMap().at(tensor(i).at("dtype").get<std::string>());
      tensors_.push_back(
          found->second.to(context.parameters.device(),
                           follows ? c10::typeMetaToScalarType(context.parameters.dtype()) : own));
    }
  }

  void draw_from_streams(ExportedGraph& graph) const {
    std::map<std::string, int> drawn;
    for (Node& node : graph.nodes()) {
      if (!node.random || node.skipped) continue;
      if (&graph == &evaluate_)
        throw Error(Error::Kind::refused, node.named() + ": draws in evaluation, too");
      const int before = drawn[node.module]++;
      node.instead = noise(node, node.module + (before == 0 ? "" : "/" + std::to_string(before)));
    }
  }

  // In the order of the training graph, a module that computes twice once.
  void make_sites(LayerMaker& layers) {
    std::vector<std::vector<NormPlace>> places(exported_->at("sites").size());
    std::vector<size_t> order;
    for (ExportedGraph* graph : {&train_, &evaluate_}) {
      std::set<size_t> taken;
      for (size_t i = 0; i < graph->nodes().size(); ++i) {
        const Node& node = graph->nodes()[i];
        if (!node.site || node.skipped) continue;
        std::vector<NormPlace>& own = places[*node.site];
        if (own.empty() && graph == &evaluate_) continue;  // training has no use for it
        if (own.empty()) order.push_back(*node.site);
        own.push_back({graph, i});
        own.back().look_behind(taken);
      }
    }
    for (const size_t site : order) make_site(layers, exported_->at("sites").at(site), places[site]);
    for (ExportedGraph* graph : {&train_, &evaluate_}) graph->find_readers();
  }

  void make_site(LayerMaker& layers, const Json& given, const std::vector<NormPlace>& places) {
    const bool relu =
        std::ranges::all_of(places, [](const NormPlace& place) { return place.relu.has_value(); });
    NormSite site{.name = given.at("name").get<std::string>(),
                  .channels = given.at("channels").get<int64_t>()};
    site.activation = relu ? Activation::relu : Activation::none;
    site.affine = given.at("affine").get<bool>();
    if (options_.numbers == Numbers::own) {
      site.eps = given.at("eps").get<double>();
      site.momentum = given.at("momentum").get<double>();
    }
    const std::shared_ptr<Layer> layer = layers.norm(site);
    place_module(site.name, layer);
    for (const NormPlace& place : places) {
      std::vector<Node>& nodes = place.graph->nodes();
      const Argument x = nodes[place.node].arguments[0];
      const size_t sum = place.add.value_or(place.node), there = relu ? *place.relu : sum;
      for (const size_t merged : {place.node, sum, there}) nodes[merged].skipped = merged != there;
      std::swap(nodes[there].site, nodes[place.node].site);
      nodes[there].arguments = {x, place.add ? place.residual : Argument()};
      nodes[there].instead = [layer, name = site.name](Values& a, const Pass& pass) -> IValue {
        const at::Tensor x = a[0].toTensor();
        if (const int64_t rows = pass.towers.local_samples() * pass.rows_per_sample; x.size(0) != rows) {
          throw Error(Error::Kind::refused, "site " + name + ": expected the " + std::to_string(rows) +
                                                " images in its first dimension, got " +
                                                std::to_string(x.size(0)));
        }
        return layer->forward(x, a[1].isTensor() ? a[1].toTensor() : at::Tensor(), pass);
      };
    }
  }

  // Whether a node is a convolution of two dimensions whose trained weight and bias nothing else reads.
  bool is_own_convolution(const ExportedGraph& graph, size_t i) const {
    const Node& node = graph.nodes()[i];
    if (node.skipped || !node.grad || !node.op.starts_with("aten::conv2d")) return false;
    const std::optional<size_t> weight = node.arguments[1].value, bias = node.arguments[2].value;
    const auto own = [&](size_t value) {
      return value < graph.images() && graph.only_reader(value) == i && trained(value);
    };
    const bool constants =
        std::ranges::none_of(node.arguments.begin() + 3, node.arguments.end(),
                             [](const Argument& a) { return a.value || !a.items.empty(); });
    if (!constants || !weight || !own(*weight) || (bias && !own(*bias))) return false;
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
      ConvSite site{.name = split(name_of(weight)).first, .weight = tensors_[weight]};
      site.in = site.weight.size(1);
      site.out = site.weight.size(0);
      site.norm_follows = next && train_.nodes()[*next].site &&
                          train_.nodes()[*next].arguments[0].value == train_.value_of(i);
      site.bias = node.arguments[2].value.has_value();
      site.compute = [handle = *node.handle,
                      rest = mapped(std::span(node.arguments).subspan(3), &Argument::constant)](
                         const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
        Values stack = {x, w, b.defined() ? IValue(b) : IValue()};
        stack.insert(stack.end(), rest.begin(), rest.end());
        handle.callBoxed(stack);
        return stack[0].toTensor();
      };
      const std::shared_ptr<Layer> layer = layers.conv(site);
      place_module(site.name, layer);
      const auto convolve = [layer](Values& a, const Pass& pass) -> IValue {
        return layer->forward(a[0].toTensor(), {}, pass);
      };
      node.instead = convolve;
      if (twin) evaluate_.nodes()[*twin].instead = convolve;
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

  void place_module(const std::string& path, const std::shared_ptr<Layer>& layer) {
    const auto [above, name] = split(path);
    module_at(above).register_module(name, layer);
    layers_.insert(path);
  }

  // Under the names of the model's state_dict. A layer's own tensors begin as those of the file; what the file
  // has for a layer that the strategy has no use for, such as running statistics, is left.
  void register_tensors() {
    const std::set<size_t> learning = reached();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensor(i).at("kind") == "constant" || !tensors_[i].is_floating_point())
        continue;  // nothing trains these
      const auto [path, name] = split(name_of(i));
      torch::nn::Module& module = module_at(path);
      at::Tensor own;
      for (const auto& tensors : {module.named_parameters(false), module.named_buffers(false)})
        if (const at::Tensor* found = tensors.find(name)) own = *found;
      if (own.defined() && own.sizes() == tensors_[i].sizes()) {
        tensors_[i] = own.copy_(tensors_[i]);
        if (tensor(i).at("kind") == "parameter" && !trained(i)) frozen_.insert(name_of(i));
      } else if (layers_.contains(path) &&
                 is_one_of(name, {"weight", "bias", "running_mean", "running_var"})) {
        continue;
      } else if (trained(i) && learning.contains(i)) {
        tensors_[i] = module.register_parameter(name, tensors_[i]);
      } else {
        tensors_[i] = module.register_buffer(name, tensors_[i]);
      }
    }
  }

  // The values that the gradients of what is asked for reach.
  std::set<size_t> reached() const {
    std::set<size_t> reached(train_.asked().begin(), train_.asked().end());
    for (size_t i = train_.nodes().size(); i-- > 0;) {
      const Node& node = train_.nodes()[i];
      if (!node.skipped && node.grad && reached.contains(train_.value_of(i)) &&
          !node.op.starts_with("aten::detach"))
        each_value(node, [&](size_t value) { reached.insert(value); });
    }
    return reached;
  }

  // What is asked of a graph.
  Maps answers(const ExportedGraph& graph, const at::Tensor& images, const Pass& pass) const {
    Values values = graph.begin(tensors_, images);
    if (&graph == &train_ && pass.details.recompute != Recompute::none)
      blocks_->run(values, pass);
    else
      graph.run(values, 0, graph.nodes().size(), pass);
    return mapped(graph.asked(), [&](size_t value) { return values[value].toTensor(); });
  }

  // Two images at the example's size, with saved statistics and without noise: the answers must have the
  // task's shape, and be those of each image alone.
  void check_answers(int64_t classes, const Model::Context& context) const {
    const auto shape = exported_->at("example").get<std::vector<int64_t>>();
    const auto refuse = [&](const std::string& why) {
      throw Error(Error::Kind::refused, options_.file + ": " + why);
    };
    if (shape.size() != 4 || shape[1] != 3)
      refuse("expected a network of images with 3 channels, got an example of " +
             shown(exported_->at("example")));
    Stream stream(0, "exported");
    std::vector<double> numbers(static_cast<size_t>(2 * 3 * shape[2] * shape[3]));
    std::ranges::generate(numbers, [&] { return stream.normal(); });
    const at::Tensor images = at::tensor(numbers).view({2, 3, shape[2], shape[3]}).to(context.parameters);
    for (const ExportedGraph* graph : {&train_, &evaluate_}) {
      const auto answer = [&](int64_t first, int64_t count) {
        const Batch batch{images.narrow(0, first, count), {}, Towers({count}, 1, 0)};
        return answers(*graph, batch.images, batch.pass({}, Mode::evaluate_saved))[0];
      };
      const at::Tensor both = answer(0, 2);
      const bool pixels = both.dim() == 4 && both.size(2) == shape[2] && both.size(3) == shape[3];
      if (!(pixels || both.dim() == 2) || both.size(0) != 2 || both.size(1) != classes) {
        refuse("expected answers of shape [images, " + std::to_string(classes) +
               ", height, width] or [images, " + std::to_string(classes) + "], got " +
               shown(Json(both.sizes().vec())) +
               " for two images; choose another output, or export the model with " + std::to_string(classes) +
               " classes");
      }
      const at::Tensor apart = at::cat({answer(0, 1), answer(1, 1)});
      if ((both - apart).abs().max().item<double>() > 1e-3 * std::max(both.abs().max().item<double>(), 1e-6))
        refuse(
            "the answer for one image depends on the others in its batch, even with frozen norms, so that no "
            "placement "
            "would give the numbers of another");
    }
  }

  Options options_;
  std::shared_ptr<const Json> exported_;
  ExportedGraph train_, evaluate_;
  std::vector<at::Tensor> tensors_;       // as the export numbers them
  std::set<std::string> layers_;          // paths of the strategy's
  std::set<std::string> frozen_;          // parameters of layers that the model has frozen
  std::optional<ExportedBlocks> blocks_;  // of the training graph, for recomputation
};

const Registered<Model> entry{{.name = "exported",
                               .summary = "a network of PyTorch, as bnlab.export wrote it",
                               .source = "torch.export (PyTorch 2.8 and newer)"},
                              make<Model, ModelOf<ExportedNetwork, Options>>};

}  // namespace bnlab::exported
