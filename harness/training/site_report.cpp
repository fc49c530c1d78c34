#include "harness/training/site_report.hpp"

namespace bnlab {
namespace {

constexpr double kLeastVariance = 1e-12;

at::Tensor copy_of(const torch::OrderedDict<std::string, at::Tensor>& buffers, const std::string& name) {
  const at::Tensor* buffer = buffers.find(name);
  return buffer == nullptr || !buffer->defined() ? at::Tensor() : buffer->to(at::kDouble).clone();
}

}  // namespace

void SiteReport::keep(const std::string& population) {
  const auto buffers = subject_.network().named_buffers();
  std::vector<Pairs> pairs;
  for (const NormSite& site : subject_.sites()) {
    pairs.push_back(
        {copy_of(buffers, site.name + ".running_mean"), copy_of(buffers, site.name + ".running_var")});
  }
  kept_[population] = std::move(pairs);
}

Json SiteReport::sites() const {
  const bool both = kept_.contains("saved") && kept_.contains("precise");
  const RunningStatistics* statistics = subject_.statistics();
  const std::vector<double> between =
      statistics == nullptr ? std::vector<double>() : statistics->between_sets();
  Json sites = Json::array();
  for (size_t i = 0; i < subject_.sites().size(); ++i) {
    const NormSite& site = subject_.sites()[i];
    Json told = {{"name", site.name}, {"channels", site.channels}};
    if (both && kept_.at("precise")[i].mean.defined()) {
      const Pairs &saved = kept_.at("saved")[i], &precise = kept_.at("precise")[i];
      const bool has_var = precise.var.defined();
      const at::Tensor var = has_var ? precise.var.clamp_min(kLeastVariance) : at::ones_like(precise.mean);
      told["saved_mean_error"] = ((saved.mean - precise.mean).abs() / var.sqrt()).mean().item<double>();
      if (has_var) {
        told["saved_variance_error"] =
            (saved.var.clamp_min(kLeastVariance) / var).log().abs().mean().item<double>();
      }
      if (i < between.size()) {
        told["between_sets"] = between[i];
      }
    }
    sites.push_back(told);
  }
  return sites;
}

}  // namespace bnlab
