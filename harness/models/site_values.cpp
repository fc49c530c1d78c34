#include "harness/models/site_values.hpp"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "harness/models/model.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

// Makes layers whose outputs have the right height and width, one channel and no meaning, and lists the
// sites. The convolutions that a network brings along keep their channels.
class ShapesOnly : public LayerMaker {
 public:
  explicit ShapesOnly(std::vector<SiteValues>& sites) : sites_(sites) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    struct Norm : Layer {
      Norm(const NormSite& site, std::vector<SiteValues>& sites) : site_(site), sites_(sites) {}
      at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override {
        sites_.push_back({site_.name, site_.channels, x.numel() / x.size(1)});  // values per image
        return x;
      }
      NormSite site_;
      std::vector<SiteValues>& sites_;
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
  std::vector<SiteValues>& sites_;
};

}  // namespace

std::vector<SiteValues> site_values(const Json& model, const std::array<int64_t, 2>& size) {
  // All strategies of a matrix ask for one network, and a large one takes seconds to read.
  static std::mutex mutex;
  static std::map<std::string, std::vector<SiteValues>> known;
  std::error_code none;
  const std::string exported = facts_of<ModelFacts>(model).folder(model) + "/graph.json";
  const auto written = std::filesystem::last_write_time(exported, none);
  const std::lock_guard lock(mutex);
  const std::string key = Json::array({model, size, written.time_since_epoch().count()}).dump();
  const auto [entry, is_new] = known.try_emplace(key);
  std::vector<SiteValues>& sites = entry->second;
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

}  // namespace bnlab
