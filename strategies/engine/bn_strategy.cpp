#include "strategies/engine/bn_strategy.hpp"

#include <torch/types.h>

#include <algorithm>

#include "strategies/engine/pooling.hpp"

namespace bnlab {

std::shared_ptr<TowerNorm> TowerStrategy::make_layer(const NormSite& site, const Rules& rules) {
  layers_.push_back(std::make_shared<TowerNorm>(site, rules, pass_, context_));
  return layers_.back();
}

void TowerStrategy::before_eval(Network& network, const Population& population, Calibration& calibration) {
  const at::NoGradGuard no_grad;
  if (layers_.empty() || population.kind == Population::Kind::batch) {
    return;
  }
  if (population.kind == Population::Kind::precise) {
    recompute(network, population.batches, calibration);
  } else {
    merge(population);
  }
}

void TowerStrategy::after_eval() {
  const at::NoGradGuard no_grad;
  for (const auto& layer : layers_) {
    layer->show(layer->saved().pair());
  }
}

void TowerStrategy::merge(const Population& population) {
  std::vector<at::Tensor> shares, pairs;
  for (const auto& layer : layers_) {
    RunningPair& pair = layer->pair(population);
    if (pair.holding() == RunningPair::Holding::whole && !population.averaged) {
      pairs.push_back(pair.pair());
    } else {
      shares.push_back(pair.share(population.averaged));
    }
  }
  if (!shares.empty()) {
    pairs = sum_over_ranks(shares);
    for (size_t i = 0; i < layers_.size(); ++i) {
      pairs[i] = layers_[i]->pair(population).pair_of_sum(pairs[i], context_.statistics.size());
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->show(pairs[i]);
    if (!shares.empty() && !population.averaged) {
      layers_[i]->pair(population).merged(pairs[i]);
    }
  }
}

void TowerStrategy::recompute(Network& network, int64_t batches, Calibration& calibration) {
  const int64_t count = std::min(batches, calibration.available());
  if (count < 1) {
    merge({});
    return;
  }
  const Step step = pass_.step;
  for (int64_t i = 0; i < count; ++i) {
    forward(network, calibration.batch(i), step, Mode::calibrate);
  }
  std::vector<at::Tensor> collected;
  std::vector<int64_t> widths;
  for (const auto& layer : layers_) {
    collected.push_back(layer->take_collected());
    widths.push_back(collected.back().size(0));
  }
  const at::Tensor all = context_.statistics.all_gather(at::cat(collected), Purpose::evaluation);
  const std::vector<at::Tensor> sites = all.split_with_sizes(widths, 1);  // [ranks, 1 + 2C] each
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Moments merged(merge_moments(sites[i], sites[i].size(0)));
    const bool empty = merged.count.item<double>() == 0;
    layers_[i]->show(empty ? layers_[i]->saved().pair() : merged.pair_rows()[0]);
  }
}

std::vector<at::Tensor> TowerStrategy::sum_over_ranks(const std::vector<at::Tensor>& of_sites) {
  std::vector<int64_t> channels;
  for (const at::Tensor& t : of_sites) {
    channels.push_back(t.size(1));
  }
  const at::Tensor sum = context_.statistics.all_gather(at::cat(of_sites, 1), Purpose::evaluation).sum(0);
  return sum.split_with_sizes(channels, 1);
}

void TowerStrategy::buffers_loaded() {
  for (const auto& layer : layers_) {
    layer->start_from_buffers();
  }
}

void TowerStrategy::average_running(double decay) {
  const at::NoGradGuard no_grad;
  for (const auto& layer : layers_) {
    layer->saved().average(decay);
  }
}

void TowerStrategy::average_replicas() {
  const at::NoGradGuard no_grad;
  if (layers_.empty() || layers_.front()->saved().holding() != RunningPair::Holding::replica) {
    return;  // one pair for all ranks already
  }
  std::vector<at::Tensor> replicas;
  for (const auto& layer : layers_) {
    replicas.push_back(layer->saved().replica());
  }
  const std::vector<at::Tensor> sums = sum_over_ranks(replicas);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->saved().set_replica(sums[i] / context_.statistics.size());
  }
}

std::vector<std::string> TowerStrategy::notes() const {
  if (rules_.route == Route::host && context_.device.is_cpu()) {
    return {rules_.strategy + ": on the CPU route host is the same as all_gather"};
  }
  return {};
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
