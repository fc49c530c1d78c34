#include "strategies/engine/bn_statistics.hpp"

#include <torch/types.h>

#include <algorithm>

#include "strategies/engine/moments.hpp"

namespace bnlab {
namespace {

// Of the squared deviations `total` [C] about the common mean, the share that `within` [C], about the means
// of the sets, leaves; the mean over the channels that vary.
double share_between(const at::Tensor& total, const at::Tensor& within) {
  const at::Tensor varies = total > 0;
  const at::Tensor share = at::where(varies, (total - within) / total, at::zeros_like(total));
  return share.sum().item<double>() / std::max<double>(1, varies.sum().item<double>());
}

}  // namespace

std::vector<double> BnStatistics::load_into_buffers(const Population& population, Calibration& calibration) {
  const at::NoGradGuard no_grad;
  if (sites_.empty() || population.kind == Population::Kind::batch) return {};
  if (population.kind == Population::Kind::precise) return recompute(population.batches, calibration);
  merge(population);
  return {};
}

std::vector<StatisticsUpdate> BnStatistics::take_updates() {
  std::vector<StatisticsUpdate> updates;
  for (const auto& site : sites_)
    if (auto update = site->take_update())
      updates.push_back([site, update = std::move(update)](const Towers& all) { update(*site, all); });
  return updates;
}

void BnStatistics::drop_collected() {
  for (const auto& site : sites_) site->drop_collected();
}

void BnStatistics::restore() {
  const at::NoGradGuard no_grad;
  for (const auto& site : sites_) site->load_into_buffers(site->saved().merged());
}

void BnStatistics::init_from_buffers(int64_t steps) {
  const at::NoGradGuard no_grad;
  for (const auto& site : sites_) site->init_from_buffers(steps);
  frozen_ = false;
}

void BnStatistics::freeze() {
  const at::NoGradGuard no_grad;
  if (!frozen_ && trained()) merge({});
  frozen_ = true;
}

void BnStatistics::merge(const Population& population) {
  if (const std::vector<at::Tensor> summands = summands_of(population); !summands.empty()) {
    load_sums_of(population, sum_over_ranks(summands));
    return;
  }
  for (const auto& site : sites_) site->load_into_buffers(site->pair(population).merged());
}

// All sites hold the pair of a population alike.
std::vector<at::Tensor> BnStatistics::summands_of(const Population& population) {
  std::vector<at::Tensor> summands;
  for (const auto& site : sites_) {
    const RunningPair& pair = site->pair(population);
    if (pair.distribution() != Distribution::replicated || population.averaged_pair)
      summands.push_back(pair.summand(population.averaged_pair));
  }
  return summands;
}

void BnStatistics::load_sums_of(const Population& population, const std::vector<at::Tensor>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    sites_[i]->load_into_buffers(sums[i]);
    if (!population.averaged_pair) sites_[i]->pair(population).set_merged(sums[i]);
  }
}

// Returns the share of each site's variance that lies between the sets.
std::vector<double> BnStatistics::recompute(int64_t batches, Calibration& calibration) {
  const int64_t count = std::min(batches, calibration.available());
  if (count < 1) {
    merge({});
    return {};
  }
  for (int64_t i = 0; i < count; ++i) calibration.forward(i);
  std::vector<at::Tensor> collected;
  std::vector<int64_t> widths;
  for (const auto& site : sites_) {
    collected.push_back(site->take_collected());
    widths.push_back(collected.back().size(0));
  }
  const at::Tensor all = communicator_.all_gather(at::cat(collected), Purpose::evaluation);
  const std::vector<at::Tensor> of_ranks = all.split_with_sizes(widths, 1);  // [ranks, 1 + 3C] each
  std::vector<double> between;
  for (size_t i = 0; i < sites_.size(); ++i) {
    const int64_t channels = sites_[i]->mean().size(0);
    const at::Tensor moments = of_ranks[i].narrow(1, 0, 1 + 2 * channels).contiguous();
    const Moments pooled(kernels::merge_moments(moments, moments.size(0)));
    between.push_back(share_between(pooled.m2[0], of_ranks[i].narrow(1, 1 + 2 * channels, channels).sum(0)));
    const bool empty = pooled.count.item<double>() == 0;
    sites_[i]->load_into_buffers(empty ? sites_[i]->saved().merged()
                                       : at::cat({pooled.mean, pooled.var(sites_[i]->ddof())}));
  }
  return between;
}

std::vector<at::Tensor> BnStatistics::sum_over_ranks(const std::vector<at::Tensor>& of_sites) {
  std::vector<int64_t> channels;
  for (const at::Tensor& t : of_sites) channels.push_back(t.size(1));
  const at::Tensor sum = communicator_.all_gather(at::cat(of_sites, 1), Purpose::evaluation).sum(0);
  return sum.split_with_sizes(channels, 1);
}

void BnStatistics::update_average(const at::Tensor& decay) {
  const at::NoGradGuard no_grad;
  for (const auto& site : sites_) site->saved().update_average(decay);
}

void BnStatistics::average_replicas() {
  const at::NoGradGuard no_grad;
  if (frozen_ || !trained() || sites_.front()->saved().distribution() != Distribution::independent)
    return;  // one pair for all ranks already
  std::vector<at::Tensor> replicas;
  for (const auto& site : sites_) replicas.push_back(site->saved().local());
  const std::vector<at::Tensor> sums = sum_over_ranks(replicas);
  for (size_t i = 0; i < sites_.size(); ++i) sites_[i]->saved().set_local(sums[i] / communicator_.size());
}

void BnStatistics::describe(State& state) {
  state.value("statistics.frozen", frozen_);
  for (size_t i = 0; i < sites_.size(); ++i) sites_[i]->describe(state, "statistics." + std::to_string(i));
}

int64_t BnStatistics::nonfinite_channels() const {
  int64_t sum = 0;
  for (const auto& site : sites_) sum += site->nonfinite_channels();
  return sum;
}

}  // namespace bnlab
