#include "harness/training/site_report.hpp"

#include <algorithm>

namespace bnlab {
namespace {

constexpr double kLeastVariance = 1e-12;

using Buffers = torch::OrderedDict<std::string, at::Tensor>;

at::Tensor copy_of(const Buffers& buffers, const std::string& name) {
  const at::Tensor* buffer = buffers.find(name);
  return buffer == nullptr || !buffer->defined() ? at::Tensor() : buffer->to(at::kDouble).clone();
}

}  // namespace

void SiteReport::keep(const std::string& population, const std::vector<double>& between_sets) {
  if (!between_sets.empty()) between_sets_ = between_sets;
  const Buffers buffers = model_.network().named_buffers();
  std::vector<Pair> pairs;
  for (const NormSite& site : model_.sites()) {
    const at::Tensor var = copy_of(buffers, site.name + ".running_var");
    pairs.push_back(
        {copy_of(buffers, site.name + ".running_mean"), var.defined() ? var.clamp_min(kLeastVariance) : var});
  }
  kept_[population] = std::move(pairs);
}

Json SiteReport::sites(const std::vector<SiteValues>& values) const {
  const bool both = kept_.contains("saved") && kept_.contains("precise");
  Json sites = Json::array();
  for (size_t i = 0; i < model_.sites().size(); ++i) {
    const NormSite& site = model_.sites()[i];
    Json told = {{"name", site.name}, {"channels", site.channels}};
    if (const auto known = std::ranges::find(values, site.name, &SiteValues::name); known != values.end())
      told["values_per_image"] = known->values;
    if (both && kept_.at("precise")[i].mean.defined()) {
      const Pair &saved = kept_.at("saved")[i], &precise = kept_.at("precise")[i];
      told["saved_mean_error"] =
          ((saved.mean - precise.mean).abs() / precise.var.sqrt()).mean().item<double>();
      told["saved_variance_error"] = (saved.var / precise.var).log().abs().mean().item<double>();
      told["between_sets"] = between_sets_.at(i);
    }
    sites.push_back(told);
  }
  return sites;
}

}  // namespace bnlab
