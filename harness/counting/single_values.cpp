#include "harness/counting/single_values.hpp"

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/error.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/models/model.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

using Site = SiteValues;

// Makes layers whose outputs have the right height and width, one channel and no meaning, and lists the
// sites. The convolutions that a network brings along keep their channels.
class ShapesOnly : public LayerMaker {
 public:
  explicit ShapesOnly(std::vector<Site>& sites) : sites_(sites) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    struct Norm : Layer {
      Norm(const NormSite& site, std::vector<Site>& sites) : site_(site), sites_(sites) {}
      at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override {
        sites_.push_back({site_.name, site_.channels, x.numel() / x.size(1)});  // of one image
        return x;
      }
      NormSite site_;
      std::vector<Site>& sites_;
    };
    return std::make_shared<Norm>(site, sites_);
  }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    struct Convolution : Layer {
      explicit Convolution(const ConvSite& site) : site_(site) {}
      at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override {
        if (site_.compute) return site_.compute(x, site_.weight, {});
        const auto out = [&](int64_t side) {
          return (side + 2 * site_.padding - site_.dilation * (site_.kernel - 1) - 1) / site_.stride + 1;
        };
        return at::zeros({x.size(0), 1, out(x.size(2)), out(x.size(3))});
      }
      ConvSite site_;
    };
    return std::make_shared<Convolution>(site);
  }

 private:
  std::vector<Site>& sites_;
};

// What the strategy says of a training step at the site; "" where it takes it.
std::string said_at(const Site& site, const Json& strategy, const std::vector<int64_t>& samples) {
  constexpr int64_t kSteps = 1000;
  Ledger ledger;
  CountingCommunicator alone(1, ledger);
  const Towers towers(samples, 1, 0);
  try {
    BuiltNetwork built(strategy,
                       {.statistics = alone, .host = alone, .steps = kSteps, .samples_per_tower = samples},
                       [&](LayerMaker& layers) {
                         return std::make_shared<OneSite>(layers.norm({site.name, site.channels}));
                       });
    built.forward({at::zeros({towers.local_samples(), site.channels, 1, 1}), {}, towers}, {0, kSteps},
                  Mode::train);
    return "";
  } catch (const Error& error) {
    return error.kind() == Error::Kind::refused ? error.what() : "";
  } catch (const std::exception&) {
    return "";  // the run itself will tell
  }
}

}  // namespace

std::vector<SiteValues> site_values(const Json& model, const std::array<int64_t, 2>& size) {
  // All strategies of a matrix ask for one network, and a large one takes seconds to read.
  static std::mutex mutex;
  static std::map<std::string, std::vector<Site>> known;
  std::error_code none;
  const std::string exported = facts_of<ModelFacts>(model).folder(model) + "/graph.json";
  const auto written = std::filesystem::last_write_time(exported, none);
  const std::lock_guard lock(mutex);
  const std::string key = Json::array({model, size, written.time_since_epoch().count()}).dump();
  const auto [entry, is_new] = known.try_emplace(key);
  std::vector<Site>& sites = entry->second;
  if (!is_new) return sites;
  try {
    ShapesOnly layers(sites);
    const int64_t own = facts_of<ModelFacts>(model).classes(model);
    const auto network = builder_of(model, {.image_sizes = {size}}, own > 0 ? own : 2)(layers);
    sites.clear();  // passed while the network was tried, as one that was exported is
    const at::NoGradGuard no_grad;
    const Batch image{at::zeros({1, 3, size[0], size[1]}), {}, Towers({1}, 1, 0)};
    network->features(image.images, image.pass({}, Mode::evaluate_saved));
  } catch (const std::exception&) {
    // A network with layers of its own, which need all channels: the sites before these are known.
  }
  return sites;
}

std::string single_value_refusal(const RunSpec& run) {
  const ImageSizes sizes = facts_of<TaskFacts>(run.task).image_sizes(run.task);  // training's first
  if (sizes.empty() || labels_clips(run.task)) return "";
  const std::vector<int64_t> samples = run.samples_per_pass();
  const auto said = [&](const Json& model, const std::vector<int64_t>& per_tower) {
    std::string first;
    for (const Site& site : site_values(model, sizes.front()))
      if (site.values == 1 && first.empty()) first = said_at(site, run.strategy, per_tower);
    return first;
  };
  const std::string refusal = said(run.model, samples);
  if (refusal.empty()) return "";
  std::vector<std::string> cures;
  if (said(run.model, std::vector<int64_t>(samples.size(), 2)).empty()) {
    if (samples.size() > 1) cures.emplace_back("`sync`");
    cures.push_back(std::string("two images per tower") + (run.accumulate > 1 ? " and pass" : ""));
  }
  for (const Parameter& option : find_registered(ModelFacts::kFamily, run.model.at("name"))->parameters()) {
    if (option.kind != Parameter::Kind::boolean || option.list) continue;
    Json other = run.model;
    other[option.name] = !other.at(option.name).get<bool>();
    if (said(other, samples).empty()) cures.push_back(shown(option.name) + ": " + shown(other[option.name]));
  }
  if (cures.size() > 1) cures.back() = "or " + cures.back();
  return refusal + (cures.empty() ? "" : "; use " + joined(cures));
}

}  // namespace bnlab
