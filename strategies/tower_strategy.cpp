#include "strategies/tower_strategy.hpp"

#include <torch/types.h>

#include "strategies/normalisation.hpp"

namespace bnlab {

std::shared_ptr<Layer> TowerStrategy::norm(const NormSite& site) {
  const auto options = at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype));
  layers_.push_back(std::make_shared<TowerNorm>(site, rules_, pass_, context_.statistics, options));
  return layers_.back();
}

void TowerStrategy::before_eval(Network&) {
  const at::NoGradGuard no_grad;
  if (layers_.empty() || !layers_.front()->share().defined()) {
    return;
  }
  std::vector<at::Tensor> shares;
  std::vector<int64_t> channels;
  for (const auto& layer : layers_) {
    shares.push_back(layer->share());
    channels.push_back(layer->share().size(1));
  }
  // Gathered and summed in rank order, so that every rank holds the same bits.
  const at::Tensor sum = context_.statistics.all_gather(at::cat(shares, 1), Purpose::evaluation).sum(0);
  const std::vector<at::Tensor> pairs = sum.split_with_sizes(channels, 1);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->set_saved_pair(pairs[i]);
  }
}

int64_t TowerStrategy::nonfinite_channels() const {
  int64_t sum = 0;
  for (const auto& layer : layers_) {
    sum += layer->nonfinite_channels();
  }
  return sum;
}

std::vector<Parameter> tower_parameters(std::vector<Parameter> own) {
  own.push_back(Parameter::number("eps", 1e-5, "added to the variance under the root").above(0));
  own.push_back(
      Parameter::number("momentum", 0.1,
                        "weight of the new value in the running statistics; null: cumulative average")
          .above(0)
          .at_most(1)
          .or_null());
  own.push_back(Parameter::boolean("affine", true, "whether there are a weight and a bias per channel"));
  return own;
}

Rules shared_rules(const Json& options) {
  Rules rules;
  rules.strategy = options.at("name").get<std::string>();
  rules.eps = options.at("eps").get<double>();
  rules.momentum = options.at("momentum").is_null()
                       ? std::nullopt
                       : std::optional<double>(options.at("momentum").get<double>());
  rules.affine = options.at("affine").get<bool>();
  return rules;
}

}  // namespace bnlab
