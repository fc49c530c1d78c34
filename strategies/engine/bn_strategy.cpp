#include "strategies/engine/bn_strategy.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/state.hpp"
#include "strategies/engine/moments.hpp"

namespace bnlab {
namespace {

// Of the squared deviations `total` [C] about the common mean, the share that `within` [C], about the means of the sets,
// leaves; the mean over the channels that vary.
double share_between(const at::Tensor& total, const at::Tensor& within) {
  const at::Tensor varies = total > 0;
  const at::Tensor share = at::where(varies, (total - within) / total, at::zeros_like(total));
  return share.sum().item<double>() / std::max<double>(1, varies.sum().item<double>());
}

}  // namespace

std::shared_ptr<Layer> BnStrategy::norm(const NormSite& site) {
  auto layer = std::make_shared<BnLayer>(site, rules_, context_);
  statistics_.add(layer->statistics());
  return layer;
}

// Averages over replicas move the pairs, and the two routes wait for the host or fill one rank's memory.
bool BnStrategy::repeats(const Step& step) const {
  if (step.index < 2 || context_.replicas || rules_.route == Route::host ||
      rules_.route == Route::gather_activations) {
    return false;
  }
  return !rules_.renorm || rules_.renorm->limits(step.index) == rules_.renorm->limits(step.index - 1);
}

std::vector<std::string> BnStrategy::notes() const {
  if (rules_.route == Route::host && context_.device.is_cpu()) {
    return {rules_.strategy + ": on the CPU route host is the same as all_gather"};
  }
  if (rules_.route == Route::automatic) {
    const int ranks = context_.statistics.size();
    return {rules_.strategy + ": on " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
            " route auto is " + name_of(route_taken(rules_.route, ranks))};
  }
  return {};
}

void BnStatistics::show(const Population& population, Calibration& calibration) {
  const at::NoGradGuard no_grad;
  const bool own = population.kind == Population::Kind::saved;
  const Population::Kind kind = own ? saved.kind : population.kind;
  if (sites_.empty() || kind == Population::Kind::batch) {
    return;
  }
  if (kind == Population::Kind::precise) {
    recompute(own ? saved.batches : population.batches, calibration);
  } else {
    merge(population);
  }
}

void BnStatistics::show_own() {
  const at::NoGradGuard no_grad;
  for (const auto& site : sites_) {
    site->show(site->saved().pair());
  }
}

void BnStatistics::freeze() {
  const at::NoGradGuard no_grad;
  if (!frozen_ && trained()) {
    merge({});
  }
  frozen_ = true;
}

// Whether the pairs have been updated since they began, which the ranks may have done apart.
bool BnStatistics::trained() const {
  return !sites_.empty() && sites_.front()->saved().trained();
}

void BnStatistics::merge(const Population& population) {
  std::vector<at::Tensor> shares, pairs;
  for (const auto& site : sites_) {
    RunningPair& pair = site->pair(population);
    if (pair.holding() == RunningPair::Holding::whole && !population.averaged) {
      pairs.push_back(pair.pair());
    } else {
      shares.push_back(pair.share(population.averaged));
    }
  }
  if (!shares.empty()) {
    pairs = sum_over_ranks(shares);
    for (size_t i = 0; i < sites_.size(); ++i) {
      pairs[i] = sites_[i]->pair(population).pair_of_sum(pairs[i], communicator_.size());
    }
  }
  for (size_t i = 0; i < sites_.size(); ++i) {
    sites_[i]->show(pairs[i]);
    if (!shares.empty() && !population.averaged) {
      sites_[i]->pair(population).merged(pairs[i]);
    }
  }
}

void BnStatistics::recompute(int64_t batches, Calibration& calibration) {
  const int64_t count = std::min(batches, calibration.available());
  if (count < 1) {
    merge({});
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    calibration.forward(i);
  }
  std::vector<at::Tensor> collected;
  std::vector<int64_t> widths;
  for (const auto& site : sites_) {
    collected.push_back(site->take_collected());
    widths.push_back(collected.back().size(0));
  }
  const at::Tensor all = communicator_.all_gather(at::cat(collected), Purpose::evaluation);
  const std::vector<at::Tensor> of_ranks = all.split_with_sizes(widths, 1);  // [ranks, 1 + 3C] each
  between_sets_.clear();
  for (size_t i = 0; i < sites_.size(); ++i) {
    const int64_t channels = sites_[i]->mean().size(0);
    const at::Tensor moments = of_ranks[i].narrow(1, 0, 1 + 2 * channels).contiguous();
    const Moments merged(kernels::merge_moments(moments, moments.size(0)));
    between_sets_.push_back(
        share_between(merged.m2[0], of_ranks[i].narrow(1, 1 + 2 * channels, channels).sum(0)));
    const bool empty = merged.count.item<double>() == 0;
    sites_[i]->show(empty ? sites_[i]->saved().pair() : at::cat({merged.mean, merged.unbiased_var()}));
  }
}

std::vector<at::Tensor> BnStatistics::sum_over_ranks(const std::vector<at::Tensor>& of_sites) {
  std::vector<int64_t> channels;
  for (const at::Tensor& t : of_sites) {
    channels.push_back(t.size(1));
  }
  const at::Tensor sum = communicator_.all_gather(at::cat(of_sites, 1), Purpose::evaluation).sum(0);
  return sum.split_with_sizes(channels, 1);
}

void BnStatistics::start_from_buffers() {
  for (const auto& site : sites_) {
    site->start_from_buffers();
  }
}

void BnStatistics::update_average(double decay) {
  const at::NoGradGuard no_grad;
  for (const auto& site : sites_) {
    site->saved().average(decay);
  }
}

void BnStatistics::average_replicas() {
  const at::NoGradGuard no_grad;
  if (frozen_ || !trained() || sites_.front()->saved().holding() != RunningPair::Holding::replica) {
    return;  // one pair for all ranks already
  }
  std::vector<at::Tensor> replicas;
  for (const auto& site : sites_) {
    replicas.push_back(site->saved().replica());
  }
  const std::vector<at::Tensor> sums = sum_over_ranks(replicas);
  for (size_t i = 0; i < sites_.size(); ++i) {
    sites_[i]->saved().set_replica(sums[i] / communicator_.size());
  }
}

void BnStatistics::describe(State& state) {
  state.value("statistics.frozen", frozen_);
  for (size_t i = 0; i < sites_.size(); ++i) {
    sites_[i]->describe(state, "statistics." + std::to_string(i));
  }
}

int64_t BnStatistics::nonfinite_channels() const {
  int64_t sum = 0;
  for (const auto& site : sites_) {
    sum += site->nonfinite_channels();
  }
  return sum;
}

void BnOptions::describe(OptionVisitor& option) {
  option("eps", eps, "added to the variance under the root").above(0);
  option("momentum", momentum, "weight of the new value in the running statistics; null: cumulative average")
      .above(0)
      .at_most(1);
  option("affine", affine, "whether there are a weight and a bias per channel");
}

Rules BnOptions::shared_rules(const std::string& strategy) const {
  Rules rules;
  rules.strategy = strategy;
  rules.eps = eps;
  rules.momentum = momentum;
  rules.affine = affine;
  return rules;
}

void check_tower(const char* key, int64_t tower, const RunOutline& run, Problems& problems) {
  const auto towers = static_cast<int64_t>(run.samples_per_tower.size());
  if (towers > 0 && tower >= towers) {
    problems.add(
        key, "expected a tower from 0 to " + std::to_string(towers - 1) + ", got " + std::to_string(tower));
  }
}

}  // namespace bnlab
