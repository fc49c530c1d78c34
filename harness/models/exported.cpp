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

#include "harness/error.hpp"
#include "harness/models/building_blocks.hpp"
#include "harness/models/exported_graph.hpp"
#include "harness/models/model.hpp"
#include "harness/random.hpp"
#include "harness/recomputation.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/upload.hpp"

namespace bnlab::exported {

using Argument = ExportedGraph::Argument;
using Node = ExportedGraph::Node;
using Values = ExportedGraph::Values;
using c10::IValue;

BNLAB_CHOICE(Sites, batch, all)
BNLAB_CHOICE(Numbers, own, strategy)

// graph.json is asked for facts in every cell of a matrix; it is read once, until it changes.
std::shared_ptr<const Json> description(const std::string& folder) {
  struct Read {
    std::filesystem::file_time_type written;
    std::shared_ptr<const Json> json;
  };
  static std::mutex mutex;
  static std::map<std::string, Read> known;
  std::error_code missing;  // read_exported says it
  const auto written = std::filesystem::last_write_time(folder + "/" + kGraphFile, missing);
  const std::lock_guard lock(mutex);
  Read& read = known[folder];
  if (read.json == nullptr || missing || read.written != written) {
    read = {};
    read = {written, std::make_shared<const Json>(read_exported(folder))};
  }
  return read.json;
}

// What is done with a damaged file throws exceptions of the JSON library and of LibTorch, too.
template <class Function>
auto of_file(const std::string& folder, Function function) {
  const auto unusable = [&](const std::string& why) {
    return Error(Error::Kind::data, folder + "/" + kGraphFile + ": damaged, or not written by bnlab.export: " + why);
  };
  try {
    return function();
  } catch (const nlohmann::json::exception& error) {
    throw unusable(error.what());
  } catch (const std::out_of_range& error) {
    throw unusable(error.what());
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw unusable(error.what_without_backtrace());
  }
}

const ExportedGraph::Output* output_named(const std::vector<ExportedGraph::Output>& outputs, const std::string& name) {
  const auto found = std::ranges::find(outputs, name, &ExportedGraph::Output::name);
  return found == outputs.end() ? nullptr : &*found;
}

struct Options {
  std::string file;
  std::string output;
  std::string auxiliary;
  double auxiliary_weight = 0;
  Sites sites = Sites::batch;
  Numbers numbers = Numbers::own;
  int64_t multiple_of = 1;

  void describe(OptionVisitor& option) {
    option("file", file, "the folder that bnlab.export wrote: graph.json and its weights").not_empty().needed();
    option("output", output, "the output that is trained and evaluated, by its name; \"\": the first");
    option("auxiliary", auxiliary, "the output of an auxiliary head, by its name");
    option("auxiliary_weight", auxiliary_weight, "of its loss; 0: the head is left out").at_least(0);
    option("sites", sites, "batch: batch norms are norm sites; all: group, layer and instance norms become some, too");
    option("numbers", numbers, "whose eps and momentum hold at the sites: the network's own, or the strategy's");
    option("multiple_of", multiple_of, "what heights and widths must be multiples of").at_least(1);
  }

  void check(const RunOutline& run, Problems& problems) const {
    if (auxiliary.empty() != (auxiliary_weight == 0))
      problems.add("auxiliary", "auxiliary and auxiliary_weight need each other; give both, or neither");
    try {
      of_file(file, [&] {
        const std::shared_ptr<const Json> read = description(file);
        const Json& exported = *read;
        const std::array<ExportedGraph, 2> graphs = {ExportedGraph(exported, "train", at::kFloat),
                                                     ExportedGraph(exported, "evaluate", at::kFloat)};
        for (const auto& [key, name] : {std::pair("output", output), std::pair("auxiliary", auxiliary)}) {
          if (name.empty() || output_named(graphs[0].outputs(), name) != nullptr) continue;
          std::vector<std::string> names;
          for (const auto& known : graphs[0].outputs()) names.push_back(shown(known.name));
          problems.add(key,
                       "expected one of the network's outputs, " + joined(names) + ", got " + shown(name));
        }
        for (const auto& size : run.image_sizes)
          if (const std::string misfit = size_misfit(exported, size); !misfit.empty()) problems.add("file", misfit);
        return 0;
      });
    } catch (const Error& error) {
      problems.add("file", error.what());
    }
  }

  Channels norm_channels() const {
    return of_file(file, [&] {
      std::set<int64_t> channels;
      const std::shared_ptr<const Json> read = description(file);
      for (const Json& site : read->at("sites")) channels.insert(site.at("channels").get<int64_t>());
      return Channels(channels.begin(), channels.end());
    });
  }
  int64_t image_multiple() const { return multiple_of; }
  std::string folder() const { return file; }
  // The shape of the answer for the example.
  std::vector<int64_t> answer() const {
    return of_file(file, [&] {
      const std::shared_ptr<const Json> read = description(file);
      const Json& outputs = read->at("evaluate").at("outputs");
      const auto named = std::ranges::find_if(outputs, [&](const Json& each) { return each.at("name") == output; });
      return (named == outputs.end() ? outputs.at(0) : *named).at("shape").get<std::vector<int64_t>>();
    });
  }
  Labelled answers_for() const { return answer().size() == 4 ? Labelled::pixels : Labelled::images; }
  MadeFor made_for() const {
    return of_file(file, [&] {
      const auto example = description(file)->at("example").get<std::vector<int64_t>>();
      return MadeFor{.classes = answer().at(1), .image_size = {example.at(2), example.at(3)}};
    });
  }
  bool brings_weights() const {
    return of_file(file, [&] { return !description(file)->at("initialisations").get<bool>(); });
  }
};

// The pass as the layers of a tensor see it that has so many rows for each image.
Pass with_rows(const Pass& pass, int64_t rows_per_image) {
  Pass wider = pass;
  if (rows_per_image == 1) return wider;
  wider.rows_per_sample *= rows_per_image;
  wider.rows.clear();
  for (const int64_t row : pass.rows)
    for (int64_t i = 0; i < rows_per_image; ++i) wider.rows.push_back(row * rows_per_image + i);
  return wider;
}

// Numbers from [0, 1) of the shape of `like`, from streams of their own: one for each row of the step, or,
// where a row has no image, one for the step.
at::Tensor uniform(const at::Tensor& like, const std::string& name, bool by_row, const Pass& pass) {
  const int64_t rows = by_row ? like.size(0) : 1, of_row = rows == 0 ? 0 : like.numel() / rows;
  std::vector<int64_t> places = by_row ? pass.rows : std::vector<int64_t>{0};
  for (int64_t r = 0; by_row && pass.rows.empty() && r < rows; ++r)
    places.push_back(pass.towers.local_begin() * pass.rows_per_sample + r);
  for (int64_t& place : places)
    if (by_row) place = pass.row_of_step(place);
  const int64_t all = by_row ? pass.micro_batch.count * pass.towers.total_samples() * pass.rows_per_sample : 1;
  const std::string purpose = (pass.mode == Mode::calibrate ? "noise/calibration/" : "noise/") + name;
  const auto write = [=, seed = pass.seed](uint8_t* bytes, uint64_t step) {
    auto* values = reinterpret_cast<float*>(bytes);
    for (const int64_t place : places) {
      Stream stream(seed, purpose, step * static_cast<uint64_t>(all) + static_cast<uint64_t>(place));
      for (int64_t i = 0; i < of_row; ++i) *values++ = static_cast<float>(stream.uniform());
    }
  };
  const int64_t count = rows * of_row * static_cast<int64_t>(sizeof(float));
  at::Tensor bytes;
  if (pass.mode == Mode::train && pass.bytes != nullptr) {
    bytes = pass.bytes->take(count, like.device(), write);
  } else {
    std::vector<uint8_t> host(static_cast<size_t>(count));
    write(host.data(), pass.mode == Mode::calibrate ? pass.batch : static_cast<uint64_t>(pass.step.index));
    bytes = uploaded(host, like.device());
  }
  return bytes.view(at::kFloat).view(like.sizes());
}

// What a node that draws does instead. quiet: what it draws in the mean, the same for every row, for the test of
// a network's rows.
std::function<IValue(Values&, const Pass&)> noise(const Node& node, const std::string& name, bool quiet) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::refused, (node.module.empty() ? "" : node.module + ": ") + node.op + " " + why);
  };
  const int64_t rows = *node.random;
  if (rows < 0) refuse("draws for images that are not its rows, so that the numbers would depend on the placement");
  const auto probability = [&] {
    const IValue& given = node.arguments.at(1).constant;
    if (!given.isScalar()) refuse("must have one probability, as a number");
    return given.toScalar().toDouble();
  };
  if (node.op.starts_with("aten::dropout") || node.op.starts_with("aten::feature_dropout")) {
    const Dropout what{name, probability(), node.op.starts_with("aten::feature_dropout")};
    if (rows == 0 || what.probability >= 1) refuse("must drop values of the images, and not all of them");
    return [=, in_place = node.writes >= 0](Values& a, const Pass& pass) -> IValue {
      const at::Tensor x = a[0].toTensor();
      if (quiet) return x;
      const at::Tensor y = dropout(x, what, with_rows(pass, rows));
      return in_place ? x.copy_(y) : y;
    };
  }
  const auto drawn = [=](const at::Tensor& like, const Pass& pass) {
    return quiet ? at::full_like(like, 0.5, like.options().dtype(at::kFloat))
                 : uniform(like, name, rows > 0, with_rows(pass, std::max<int64_t>(rows, 1)));
  };
  if (node.op == "aten::bernoulli_.float" || node.op == "aten::bernoulli.p") {
    return [=, p = probability(), in_place = node.writes >= 0](Values& a, const Pass& pass) -> IValue {
      const at::Tensor x = a[0].toTensor();
      const at::Tensor kept = (quiet ? at::ones_like(x) : drawn(x, pass).lt(p)).to(x.scalar_type());
      return in_place ? x.copy_(kept) : kept;
    };
  }
  if (node.op != "aten::rand") refuse("is no noise that bnlab draws");
  return [=](Values& a, const Pass& pass) -> IValue {  // size, dtype, layout, device
    const at::Device device = a[3].isNone() ? at::Device(at::kCPU) : a[3].toDevice();
    const at::Tensor like = at::empty(a[0].toIntVector(), at::TensorOptions().dtype(at::kFloat).device(device));
    return drawn(like, pass).to(a[1].isNone() ? at::kFloat : a[1].toScalarType());
  };
}

// One norm site and the nodes of both graphs that stand at it.
struct Site {
  // A node, what is computed with it, and where: its own place, that of an addition, or that of a ReLU.
  struct Place {
    ExportedGraph* graph;
    size_t node;
    std::optional<size_t> add = {}, relu = {};
    Argument residual = {};
    bool channels_last = false;  // of a layer norm: the channels are the last dimension
  };

  NormSite site;
  std::vector<Place> places = {};
  std::shared_ptr<Layer> layer = nullptr;
};

class Fusion {
 public:
  Fusion(ExportedGraph& graph, const std::vector<int64_t>& asked) : graph_(graph), readers_(graph.readers(asked)) {
    const std::vector<Node>& nodes = graph.nodes();
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const Argument& argument : nodes[i].arguments)
        if (!nodes[i].skipped) each_value(argument, [&](int64_t value) { reader_[value] = i; });
  }

  // Whether nothing but one argument of one node reads the value, and which.
  std::optional<size_t> only_reader(int64_t value) const {
    const auto found = reader_.find(value);
    return found != reader_.end() && readers_[static_cast<size_t>(value)] == 1 ? std::optional(found->second) : std::nullopt;
  }

  // Finds the addition and the ReLU that follow a site's node alone.
  void follow(Site::Place& place) {
    const int64_t x = node(place.node).arguments[0].value;
    std::optional<size_t> next = only_reader(graph_.value_of(place.node));
    if (next && is(*next, "aten::add.Tensor", "aten::add_.Tensor") && adds_like(*next)) {
      const std::vector<Argument>& operands = node(*next).arguments;
      const bool first = operands[0].value == graph_.value_of(place.node);
      const int64_t other = operands[first ? 1 : 0].value;
      // Of an addition in place the other operand changes, which somebody may read.
      const bool safe = first || node(*next).writes < 0;
      if (other >= 0 && safe && claimed_.insert(*next).second && !written(graph_.root(x), place.node, *next)) {
        place.add = next;
        place.residual = operands[first ? 1 : 0];
        const std::optional<size_t> after = only_reader(graph_.value_of(*next));
        const bool still = after && !written(graph_.root(x), *next, *after) && !written(graph_.root(other), *next, *after);
        if (still && is(*after, "aten::relu", "aten::relu_")) place.relu = after;
      }
    } else if (next && is(*next, "aten::relu", "aten::relu_") && !written(graph_.root(x), place.node, *next)) {
      place.relu = next;
    }
  }

 private:
  const Node& node(size_t i) const { return graph_.nodes()[i]; }
  bool is(size_t i, const char* op, const char* other) const { return node(i).op == op || node(i).op == other; }
  bool adds_like(size_t i) const {
    const IValue& alpha = node(i).arguments[2].constant;
    return node(i).like && alpha.isInt() && alpha.toInt() == 1;
  }
  // Whether a node between these two changes the memory.
  bool written(int64_t root, size_t after, size_t before) const {
    for (size_t i = after + 1; i < before; ++i)
      if (!node(i).skipped && node(i).writes >= 0 && graph_.root(node(i).writes) == root) return true;
    return false;
  }

  ExportedGraph& graph_;
  std::vector<int64_t> readers_;
  std::map<int64_t, size_t> reader_;  // the last node that reads a value
  std::set<size_t> claimed_;          // additions
};

class ExportedNetwork : public Network {
 public:
  ExportedNetwork(LayerMaker& layers, const Options& options, int64_t classes, const Model::Context& context)
      : options_(options),
        exported_(description(options.file)),
        train_(*exported_, "train", context.parameters),
        evaluate_(*exported_, "evaluate", context.parameters) {
    const at::NoGradGuard no_grad;
    read_tensors(context);
    check_answers(classes, context);
    choose_outputs();
    std::vector<Site> sites = found_sites();
    make_sites(layers, sites);
    make_convolutions(layers);
    register_tensors();
    silence_or_draw(train_, /*quiet=*/false);
    refuse_noise_in_evaluation();
    train_.finish(asked_train_);
    evaluate_.finish(asked_evaluate_);
    cut_into_blocks();
  }

  Maps features(at::Tensor images, const Pass& pass) override {
    const bool training = pass.as_in_training();
    ExportedGraph& graph = training ? train_ : evaluate_;
    const std::vector<int64_t>& asked = training ? asked_train_ : asked_evaluate_;
    std::vector<at::Tensor> before;  // of buffers that a training pass changes: one that calibrates leaves them
    for (const size_t i : changed_)
      if (pass.mode == Mode::calibrate) before.push_back(tensors_[i].clone());
    Values values = graph.begin(tensors_, images);
    if (!training || pass.recompute == Recompute::none)
      graph.run(values, 0, graph.nodes().size(), pass);
    else
      run_blocks(values, pass);
    for (size_t i = 0; i < before.size(); ++i) tensors_[changed_[i]].copy_(before[i]);
    Maps maps;
    for (const int64_t value : asked) maps.push_back(values[static_cast<size_t>(value)].toTensor());
    return maps;
  }

  Outputs head(const Maps& maps, const Pass&) override {
    return {.logits = maps[0],
            .auxiliary = maps.size() > 1 ? maps[1] : at::Tensor(),
            .auxiliary_weight = maps.size() > 1 ? options_.auxiliary_weight : 0};
  }

  bool trainable(const std::string& parameter) const override { return !frozen_.contains(parameter); }
  bool brings_statistics() const override { return true; }

  // Sizes that follow from the values of a tensor.
  std::string why_not_replayed() const override {
    for (const Node& node : train_.nodes()) {
      const bool by_values = node.op == "aten::index.Tensor" && std::ranges::any_of(node.arguments[1].items, [&](const Argument& i) {
        return i.value >= train_.images() || (i.value >= 0 && tensors_[static_cast<size_t>(i.value)].scalar_type() == at::kBool);
      });
      if (!node.skipped && (by_values || node.op == "aten::repeat_interleave.Tensor" || node.op == "aten::one_hot"))
        return node.op + (node.module.empty() ? "" : " in " + node.module) + " may wait for the values of a tensor";
    }
    return "";
  }

  std::vector<std::string> notes() const override {
    return {"exported from PyTorch " + exported_->at("torch").get<std::string>() +
            (exported_->at("initialisations").get<bool>() ? ": each seed starts from an initialisation of its own"
                                                          : ": all seeds start from the weights that came along")};
  }

 private:
  // A part of the training graph whose activations are computed again, with one tensor that is read behind it.
  struct Block {
    size_t first, last;
    std::vector<int64_t> inputs;  // tensors; undefined are none
    int64_t output = -1;          // -1: kept as it is
  };

  const Json& tensor(size_t i) const { return exported_->at("tensors").at(i); }
  std::string name_of(size_t i) const { return tensor(i).at("name").get<std::string>(); }

  void read_tensors(const Model::Context& context) {
    const Json& files = exported_->at("weights");
    const bool by_seed = exported_->at("initialisations").get<bool>();
    if (by_seed && context.seed >= files.size()) {
      throw Error(Error::Kind::refused, options_.file + " has initialisations for the seeds 0 to " +
                                            std::to_string(files.size() - 1) + ", got seed " + std::to_string(context.seed) +
                                            "; export with more seeds");
    }
    const auto plain = files.at(by_seed ? context.seed : 0).get<std::string>();
    if (plain.find('/') != std::string::npos)
      throw Error(Error::Kind::data, options_.file + ": expected weights beside graph.json, got " + shown(plain));
    const std::string file = options_.file + "/" + plain;
    std::map<std::string, at::Tensor> read;
    for (NamedTensor& each : read_safetensors(file)) read[each.name] = std::move(each.tensor);
    const auto run_type = c10::typeMetaToScalarType(context.parameters.dtype());
    for (size_t i = 0; i < exported_->at("tensors").size(); ++i) {
      const auto found = read.find(name_of(i));
      const auto shape = tensor(i).at("shape").get<std::vector<int64_t>>();
      if (found == read.end() || found->second.sizes() != at::IntArrayRef(shape))
        throw Error(Error::Kind::data, file + ": lacks " + name_of(i) + " of shape " + shown(tensor(i).at("shape")));
      const auto own = tensor(i).at("dtype").get<std::string>();
      const bool follows = own == exported_->at("dtype").get<std::string>();
      const at::ScalarType type = follows ? run_type : own == "bool" ? at::kBool : own == "uint8" ? at::kByte : found->second.scalar_type();
      tensors_.push_back(found->second.to(context.parameters.device(), type));
    }
  }

  // The outputs that are asked for. Whatever nothing needs is left out: an auxiliary head that is not trained.
  void choose_outputs() {
    const auto first = [&](const ExportedGraph& graph) -> const ExportedGraph::Output& {
      const ExportedGraph::Output* named = output_named(graph.outputs(), options_.output);
      return named != nullptr ? *named : graph.outputs().front();
    };
    asked_train_ = {first(train_).value};
    asked_evaluate_ = {first(evaluate_).value};
    if (!options_.auxiliary.empty()) {
      const ExportedGraph::Output* auxiliary = output_named(train_.outputs(), options_.auxiliary);
      if (auxiliary == nullptr) throw Error(Error::Kind::refused, "the network has no output " + options_.auxiliary);
      asked_train_.push_back(auxiliary->value);
    }
    train_.keep(asked_train_);
    evaluate_.keep(asked_evaluate_);
    for (const Node& node : train_.nodes()) {
      const int64_t root = node.skipped || node.writes < 0 ? -1 : train_.root(node.writes);
      if (root >= 0 && root < train_.images() && std::ranges::find(changed_, static_cast<size_t>(root)) == changed_.end())
        changed_.push_back(static_cast<size_t>(root));
    }
  }

  // Those of the export, and with Sites::all other norms of the images, in the order of the training graph.
  std::vector<Site> found_sites() {
    std::vector<Site> sites;
    std::map<std::string, size_t> places;
    for (ExportedGraph* graph : {&train_, &evaluate_}) {
      Fusion fusion(*graph, graph == &train_ ? asked_train_ : asked_evaluate_);
      for (size_t i = 0; i < graph->nodes().size(); ++i) {
        if (graph->nodes()[i].skipped) continue;
        const std::optional<NormSite> at = site_at(*graph, graph->nodes()[i]);
        if (!at || (graph == &evaluate_ && !places.contains(at->name))) continue;
        const auto [found, is_new] = places.try_emplace(at->name, sites.size());
        if (is_new) sites.push_back(Site{.site = *at});
        Site::Place place{graph, i};
        place.channels_last = graph->nodes()[i].op == "aten::layer_norm";
        if (!place.channels_last) fusion.follow(place);
        sites[found->second].places.push_back(std::move(place));
      }
    }
    return sites;
  }

  std::optional<NormSite> site_at(const ExportedGraph& graph, const Node& node) const {
    if (node.site >= 0) {
      const Json& site = exported_->at("sites").at(static_cast<size_t>(node.site));
      NormSite at{.name = site.at("name").get<std::string>(), .channels = site.at("channels").get<int64_t>()};
      at.affine = site.at("affine").get<bool>();
      if (options_.numbers == Numbers::own) {
        at.eps = site.at("eps").get<double>();
        at.momentum = site.at("momentum").get<double>();
      }
      return at;
    }
    static const std::map<std::string, std::array<size_t, 2>> others = {  // the places of weight and eps
        {"aten::group_norm", {2, 4}}, {"aten::layer_norm", {2, 4}}, {"aten::instance_norm", {1, 7}}};
    const auto kind = others.find(node.op);
    if (options_.sites != Sites::all || kind == others.end() || !graph.depends_on_images(node.arguments[0].value)) return {};
    const int64_t weight = node.arguments[kind->second[0]].value;
    if (weight < 0 || weight >= graph.images() || tensors_[static_cast<size_t>(weight)].dim() != 1) return {};
    const std::string name = name_of(static_cast<size_t>(weight));
    NormSite at{.name = name.substr(0, name.rfind('.')), .channels = tensors_[static_cast<size_t>(weight)].size(0)};
    if (options_.numbers == Numbers::own) at.eps = node.arguments[kind->second[1]].constant.toDouble();
    return at;
  }

  void make_sites(LayerMaker& layers, std::vector<Site>& sites) {
    for (Site& site : sites) {
      const bool relu = std::ranges::all_of(site.places, [](const Site::Place& place) { return place.relu.has_value(); });
      site.site.activation = relu ? Activation::relu : Activation::none;
      site.layer = layers.norm(site.site);
      place_module(site.site.name, site.layer);
      for (Site::Place& place : site.places) {
        std::vector<Node>& nodes = place.graph->nodes();
        const size_t there = relu ? *place.relu : place.add.value_or(place.node);
        const Argument x = nodes[place.node].arguments[0];
        for (const size_t merged : {place.node, place.add.value_or(place.node), there}) nodes[merged].skipped = merged != there;
        nodes[there].arguments = {x, place.add ? place.residual : Argument()};
        nodes[there].site = std::max<int64_t>(nodes[place.node].site, 0);
        nodes[there].instead = [layer = site.layer, name = site.site.name, last = place.channels_last](Values& a, const Pass& pass) -> IValue {
          const at::Tensor x = last ? a[0].toTensor().movedim(-1, 1) : a[0].toTensor();
          const int64_t rows = pass.towers.local_samples() * pass.rows_per_sample;
          if (rows == 0 ? x.size(0) != 0 : x.size(0) % rows != 0) {
            throw Error(Error::Kind::refused, "site " + name + ": expected rows of the " + std::to_string(rows) +
                                                  " images in its first dimension, got " + std::to_string(x.size(0)));
          }
          const at::Tensor residual = a[1].isTensor() ? a[1].toTensor() : at::Tensor();
          const at::Tensor y = layer->forward(x, residual, with_rows(pass, rows == 0 ? 1 : x.size(0) / rows));
          return last ? y.movedim(1, -1) : y;
        };
      }
    }
  }

  // Convolutions of two dimensions with trained weights that one node of each graph reads.
  void make_convolutions(LayerMaker& layers) {
    const auto convolutions = [&](const ExportedGraph& graph, const std::vector<int64_t>& asked) {
      const std::vector<int64_t> readers = graph.readers(asked);
      std::map<size_t, size_t> found;  // weight -> node
      for (size_t i = 0; i < graph.nodes().size(); ++i) {
        const Node& node = graph.nodes()[i];
        if (node.skipped || !node.op.starts_with("aten::conv2d")) continue;
        const int64_t weight = node.arguments[1].value, bias = node.arguments[2].value;
        const bool constants = std::ranges::none_of(node.arguments.begin() + 3, node.arguments.end(),
                                                    [](const Argument& a) { return a.value >= 0 || a.is_list; });
        const auto alone = [&](int64_t value) { return value < graph.images() && readers[static_cast<size_t>(value)] == 1; };
        if (weight >= 0 && alone(weight) && (bias < 0 || alone(bias)) && constants && node.grad)
          found[static_cast<size_t>(weight)] = i;
      }
      return found;
    };
    const auto evaluated = convolutions(evaluate_, asked_evaluate_);
    const Fusion fusion(train_, asked_train_);
    for (const auto& [weight, i] : convolutions(train_, asked_train_)) {
      const bool read = std::ranges::any_of(evaluate_.nodes(), [&, w = static_cast<int64_t>(weight)](const Node& node) {
        return !node.skipped && node.arguments.size() > 1 && node.arguments[1].value == w;
      });
      if (!tensor(weight).value("trained", false) || (read && !evaluated.contains(weight))) continue;
      const Node& node = train_.nodes()[i];
      const int64_t bias = node.arguments[2].value;
      const std::optional<size_t> next = fusion.only_reader(train_.value_of(i));
      ConvSite site{.name = module_of(weight)};
      site.weight = tensors_[weight];
      site.in = site.weight.size(1);
      site.out = site.weight.size(0);
      site.kernel = site.weight.size(2);
      site.norm_follows = next && train_.nodes()[*next].site >= 0 &&
                          train_.nodes()[*next].arguments[0].value == train_.value_of(i);
      site.bias = bias >= 0;
      Values rest;
      for (size_t a = 3; a < node.arguments.size(); ++a) rest.push_back(node.arguments[a].constant);
      if (rest[1].isIntList()) {  // of a square kernel; what is computed follows from `compute`
        site.stride = rest[0].toIntVector().at(0);
        site.padding = rest[1].toIntVector().at(0);
        site.dilation = rest[2].toIntVector().at(0);
      }
      site.compute = [handle = *node.handle, rest](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
        Values stack = {x, w, b.defined() ? IValue(b) : IValue()};
        stack.insert(stack.end(), rest.begin(), rest.end());
        handle.callBoxed(stack);
        return stack[0].toTensor();
      };
      const std::shared_ptr<Layer> layer = layers.conv(site);
      place_module(site.name, layer);
      const auto call = [layer](Values& a, const Pass& pass) -> IValue { return layer->forward(a[0].toTensor(), {}, pass); };
      train_.nodes()[i].instead = call;
      if (read) evaluate_.nodes()[evaluated.at(weight)].instead = call;
    }
  }

  std::string module_of(size_t i) const {
    const std::string name = name_of(i);
    return name.substr(0, name.rfind('.'));
  }

  // The module at a path, with those on the way.
  torch::nn::Module& module_at(const std::string& path) {
    torch::nn::Module* module = this;
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      const std::string part = path.substr(begin, end - begin);
      std::shared_ptr<torch::nn::Module> child;
      for (const auto& known : module->named_children())
        if (known.key() == part) child = known.value();
      module = child != nullptr ? child.get() : module->register_module(part, std::make_shared<torch::nn::Module>()).get();
      begin = end + 1;
    }
    return *module;
  }

  void place_module(const std::string& path, const std::shared_ptr<Layer>& layer) {
    const size_t dot = path.rfind('.');
    module_at(dot == std::string::npos ? "" : path.substr(0, dot)).register_module(dot == std::string::npos ? path : path.substr(dot + 1), layer);
    layers_.insert(path);
  }

  // Under the names of the model's state_dict. A layer's own tensors begin as those of the file; what the file
  // has for a norm that the strategy has no use for, such as running statistics, is left.
  void register_tensors() {
    const std::set<int64_t> learning = reached();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::string name = name_of(i), kind = tensor(i).at("kind").get<std::string>();
      if (kind == "constant" || !tensors_[i].is_floating_point()) continue;  // nothing trains these
      const size_t dot = name.rfind('.');
      const std::string path = dot == std::string::npos ? "" : name.substr(0, dot), last = dot == std::string::npos ? name : name.substr(dot + 1);
      const bool trained = kind == "parameter" && tensor(i).at("trained").get<bool>();
      if (layers_.contains(path)) {
        at::Tensor own;
        for (const auto& tensors : {module_at(path).named_parameters(false), module_at(path).named_buffers(false)})
          if (const at::Tensor* found = tensors.find(last)) own = *found;
        if (own.defined() && own.sizes() == tensors_[i].sizes()) {
          own.copy_(tensors_[i]);
          tensors_[i] = own;
          if (kind == "parameter" && !trained) frozen_.insert(name);
          continue;
        }
        if (is_of_norm(last)) continue;
      }
      if (trained && learning.contains(static_cast<int64_t>(i)))
        tensors_[i] = module_at(path).register_parameter(last, tensors_[i].detach());
      else
        tensors_[i] = module_at(path).register_buffer(last, tensors_[i].detach());
    }
  }

  static bool is_of_norm(const std::string& name) {
    return name == "weight" || name == "bias" || name == "running_mean" || name == "running_var";
  }

  // The tensors that get a gradient from the outputs that are asked for.
  std::set<int64_t> reached() const {
    std::set<int64_t> reached(asked_train_.begin(), asked_train_.end());
    for (size_t i = train_.nodes().size(); i-- > 0;) {
      const Node& node = train_.nodes()[i];
      if (node.skipped || !node.grad || !reached.contains(train_.value_of(i)) || node.op.starts_with("aten::detach")) continue;
      for (const Argument& argument : node.arguments) each_value(argument, [&](int64_t value) { reached.insert(value); });
    }
    return reached;
  }

  void refuse_noise_in_evaluation() const {
    for (const Node& node : evaluate_.nodes())
      if (node.random && !node.skipped)
        throw Error(Error::Kind::refused, options_.file + ": " + node.module + " draws in evaluation, too (" + node.op + ")");
  }

  static void silence_or_draw(ExportedGraph& graph, bool quiet) {
    std::map<std::string, int> drawn;
    for (Node& node : graph.nodes()) {
      if (!node.random || node.skipped) continue;
      const int before = drawn[node.module]++;
      node.instead = noise(node, node.module + (before == 0 ? "" : "/" + std::to_string(before)), quiet);
    }
  }

  // Two images at the example's size, with norms by their running statistics and without noise: the answers must
  // have the task's shape, and be those of each image alone.
  void check_answers(int64_t classes, const Model::Context& context) const {
    const auto shape = exported_->at("example").get<std::vector<int64_t>>();
    if (shape.size() != 4 || shape[1] != 3)
      throw Error(Error::Kind::refused, options_.file + ": expected a network of images with 3 channels, got an example of " + shown(exported_->at("example")));
    at::Tensor images = at::empty({2, 3, shape[2], shape[3]}, at::kFloat);
    Stream stream(0, "exported");
    for (int64_t i = 0; i < images.numel(); ++i) images.mutable_data_ptr<float>()[i] = static_cast<float>(stream.normal());
    images = images.to(context.parameters);
    for (const char* mode : {"train", "evaluate"}) {
      ExportedGraph graph(*exported_, mode, context.parameters);
      silence_or_draw(graph, /*quiet=*/true);
      for (Node& node : graph.nodes()) {
        if (node.site < 0) continue;
        node.instead = [](Values& a, const Pass&) -> IValue {
          const auto optional = [](const IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); };
          return at::batch_norm(a[0].toTensor(), optional(a[1]), optional(a[2]), optional(a[3]), optional(a[4]),
                                /*training=*/false, 0, a[7].toDouble(), at::globalContext().userEnabledCuDNN());
        };
      }
      const auto answer = [&](const at::Tensor& x) {
        std::vector<at::Tensor> tensors;  // which a training graph may change
        for (const at::Tensor& each : tensors_) tensors.push_back(each.clone());
        Values values = graph.begin(tensors, x);
        graph.run(values, 0, graph.nodes().size(), {});
        const ExportedGraph::Output* named = output_named(graph.outputs(), options_.output);
        return values[static_cast<size_t>((named != nullptr ? *named : graph.outputs().front()).value)].toTensor();
      };
      const at::Tensor both = answer(images);
      const bool pixels = both.dim() == 4 && both.size(2) == shape[2] && both.size(3) == shape[3];
      if (!(pixels || both.dim() == 2) || both.size(0) != 2 || both.size(1) != classes) {
        throw Error(Error::Kind::refused, options_.file + ": expected answers of shape [images, " + std::to_string(classes) +
                                              ", height, width] or [images, " + std::to_string(classes) + "], got " +
                                              shown(Json(both.sizes().vec())) + " for two images; choose another output, or export the model with " +
                                              std::to_string(classes) + " classes");
      }
      const at::Tensor apart = at::cat({answer(images.narrow(0, 0, 1)), answer(images.narrow(0, 1, 1))});
      const double scale = both.abs().max().item<double>();
      if ((both - apart).abs().max().item<double>() > 1e-3 * std::max(scale, 1e-6)) {
        throw Error(Error::Kind::refused, options_.file + ": the answer for one image depends on the others in its batch, even with "
                                              "frozen norms, so that no placement would give the numbers of another");
      }
    }
  }

  // Greedy: a block ends at the first place behind a site where one tensor of it is read later.
  void cut_into_blocks() {
    const std::vector<Node>& nodes = train_.nodes();
    std::vector<size_t> last(static_cast<size_t>(train_.value_of(nodes.size())), 0);
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const Argument& argument : nodes[i].arguments)
        if (!nodes[i].skipped) each_value(argument, [&](int64_t value) { last[static_cast<size_t>(value)] = i; });
    for (const int64_t value : asked_train_) last[static_cast<size_t>(value)] = nodes.size();
    for (size_t first = 0; first < nodes.size();) {
      size_t end = nodes.size();
      int64_t output = -1;
      bool site = false, plain = false;
      for (size_t i = first; i < nodes.size(); ++i) {
        const Node& node = nodes[i];
        site = site || (!node.skipped && node.instead != nullptr);
        plain = plain || (!node.skipped && node.writes >= 0 && train_.root(node.writes) < train_.images());
        std::vector<int64_t> live;
        for (size_t j = first; j <= i; ++j)
          if (!nodes[j].skipped && !is_size(nodes[j]) && last[static_cast<size_t>(train_.value_of(j))] > i)
            live.insert(live.end(), is_one_tensor(nodes[j]) ? 1 : 2, train_.value_of(j));  // no cut through a list
        if (site && live.size() == 1) {
          end = i + 1;
          output = plain ? -1 : live[0];
          break;
        }
      }
      Block block{.first = first, .last = end, .inputs = {}, .output = output};
      std::set<int64_t> read;
      for (size_t i = first; i < end; ++i)
        for (const Argument& argument : nodes[i].arguments)
          if (!nodes[i].skipped) each_value(argument, [&](int64_t value) { read.insert(value); });
      for (const int64_t value : read)
        if (value >= train_.images() && value < train_.value_of(first) &&
            (value == train_.images() || !is_size(nodes[static_cast<size_t>(value - train_.images() - 1)])))
          block.inputs.push_back(value);
      blocks_.push_back(std::move(block));
      first = end;
    }
  }

  static bool is_one_tensor(const Node& node) {
    if (node.instead || !node.handle) return true;
    const auto& returns = node.handle->schema().returns();
    return returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType;
  }

  static bool is_size(const Node& node) {
    return (!node.handle && node.op != "py::getitem" && node.instead == nullptr) || node.op.starts_with("aten::sym_");
  }

  void run_blocks(Values& values, const Pass& pass) const {
    for (const Block& block : blocks_) {
      if (block.output < 0 || block.inputs.empty()) {
        train_.run(values, block.first, block.last, pass);
        continue;
      }
      std::vector<at::Tensor> inputs;
      for (const int64_t value : block.inputs) inputs.push_back(values[static_cast<size_t>(value)].toTensor());
      // What a block reads beside its inputs: weights and sizes.
      auto constants = std::make_shared<Values>(values.begin(), values.end());
      for (size_t v = static_cast<size_t>(train_.images()); v < constants->size(); ++v)
        if ((*constants)[v].isTensor() || (*constants)[v].isTuple() || (*constants)[v].isList()) (*constants)[v] = IValue();
      Values* first_pass = &values;  // which takes the sizes that the block finds
      const at::Tensor output = recomputed(inputs, pass, [this, &block, constants, first_pass](const auto& given, const Pass& inner) mutable {
        Values own = *constants;
        own[static_cast<size_t>(train_.images())] = given[0];  // for its device
        for (size_t i = 0; i < given.size(); ++i) own[static_cast<size_t>(block.inputs[i])] = changes(block, block.inputs[i]) ? given[i].clone() : given[i];
        train_.run(own, block.first, block.last, inner);
        if (first_pass != nullptr) {
          for (size_t i = block.first; i < block.last; ++i)
            if (is_size(train_.nodes()[i])) (*first_pass)[static_cast<size_t>(train_.value_of(i))] = own[static_cast<size_t>(train_.value_of(i))];
          first_pass = nullptr;
        }
        return own[static_cast<size_t>(block.output)].toTensor();
      });
      values[static_cast<size_t>(block.output)] = output;
      for (size_t i = block.first; i < block.last; ++i)
        for (const int64_t value : train_.nodes()[i].dies) values[static_cast<size_t>(value)] = IValue();
    }
  }

  bool changes(const Block& block, int64_t input) const {
    for (size_t i = block.first; i < block.last; ++i) {
      const Node& node = train_.nodes()[i];
      if (!node.skipped && node.writes >= 0 && train_.root(node.writes) == train_.root(input)) return true;
    }
    return false;
  }

  Options options_;
  std::shared_ptr<const Json> exported_;
  ExportedGraph train_, evaluate_;
  std::vector<int64_t> asked_train_, asked_evaluate_;
  std::vector<at::Tensor> tensors_;  // as the export numbers them
  std::vector<size_t> changed_;      // of these: buffers that a training pass changes
  std::set<std::string> layers_;     // paths of the strategy's
  std::set<std::string> frozen_;     // parameters of layers that the model has frozen
  std::vector<Block> blocks_;
};

class Exported : public Model {
 public:
  using Options = exported::Options;

  Exported(const Options& options, const Context& context) : options_(options), context_(context) {}

  std::shared_ptr<Network> build(LayerMaker& layers, int64_t classes) const override {
    return of_file(options_.file, [&] { return std::make_shared<ExportedNetwork>(layers, options_, classes, context_); });
  }

 private:
  Options options_;
  Context context_;
};

const Registered<Model> entry{{.name = "exported",
                               .summary = "a network of PyTorch, as bnlab.export wrote it",
                               .source = "torch.export (PyTorch 2.8 and newer)"},
                              make<Model, Exported>};

}  // namespace bnlab::exported
