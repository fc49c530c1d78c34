#include "strategies/engine/running_pair.hpp"

#include <torch/types.h>

#include <algorithm>

#include "harness/upload.hpp"
#include "strategies/kernels/coefficients.hpp"

namespace bnlab {

PairUpdate pair_update(const PairRule& rule, const std::vector<int64_t>& elements, int64_t& updates) {
  PairUpdate update;
  update.weights.assign(elements.size(), 0.0);
  const auto next_weight = [&] {
    ++updates;
    return rule.momentum ? *rule.momentum : 1.0 / static_cast<double>(updates);
  };
  const auto is_full = [](int64_t n) { return n > 0; };
  switch (rule.remember) {
    case Remember::tower: {
      const size_t tower = rule.tower < 0 ? elements.size() - 1 : static_cast<size_t>(rule.tower);
      if (is_full(elements[tower])) {
        update.weights[tower] = next_weight();
        update.decay = 1 - update.weights[tower];
      }
      break;
    }
    case Remember::every:
      for (size_t t = 0; t < elements.size(); ++t) {
        if (is_full(elements[t])) {
          const double a = next_weight();
          for (double& earlier : update.weights) {
            earlier *= 1 - a;
          }
          update.weights[t] = a;
          update.decay *= 1 - a;
        }
      }
      break;
    case Remember::mean:
    case Remember::pooled: {  // one update with the mean over the sets that are not empty
      const auto full = std::count_if(elements.begin(), elements.end(), is_full);
      if (full > 0) {
        const double a = next_weight();
        for (size_t t = 0; t < elements.size(); ++t) {
          update.weights[t] = is_full(elements[t]) ? a / static_cast<double>(full) : 0.0;
        }
        update.decay = 1 - a;
      }
      break;
    }
  }
  return update;
}

RunningPair::RunningPair(const PairRule& rule, Holding holding, int rank, const at::Tensor& initial)
    : rule_(rule), holding_(holding), rank_(rank) {
  if (holding == Holding::replica) {
    saved_here_ = rule.tower == rank;
    rule_.tower = rank;
  }
  start_from(initial);
}

void RunningPair::start_from(const at::Tensor& pair) {
  held_ = holding_ == Holding::shares ? of_rank0(pair) : pair.clone();
  merged_ = pair.clone();
  averaged_ = held_.clone();
  spoiled_ = at::zeros_like(pair.narrow(0, 0, 1));
}

at::Tensor RunningPair::of_rank0(const at::Tensor& pair) const {
  return rank_ == 0 ? pair.clone() : at::zeros_like(pair);
}

void RunningPair::update(const at::Tensor& rows, const std::vector<int64_t>& elements, int64_t first,
                         const at::Tensor& nonfinite) {
  if (const auto step = begin_update(rows.size(0), elements, first, nonfinite)) {
    kernels::update_running(*step, rows);
  }
}

std::optional<kernels::RunningUpdate> RunningPair::begin_update(int64_t rows,
                                                                const std::vector<int64_t>& elements,
                                                                int64_t first, const at::Tensor& nonfinite) {
  trained_ = trained_ || std::any_of(elements.begin(), elements.end(), [](int64_t n) { return n > 0; });
  const PairUpdate step = pair_update(rule_, elements, updates_);
  const auto count = static_cast<size_t>(rows);
  std::vector<double> weights(2 * count);  // of these rows; whether they take part
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    const size_t set = static_cast<size_t>(first) + i;
    weights[i] = step.weights[set];
    // With momentum 1 a tower's update in turn may weigh 0 and counts all the same.
    const bool in_turn = rule_.remember == Remember::every && elements[set] > 0;
    weights[count + i] = weights[i] != 0 || in_turn ? 1 : 0;
    any = any || weights[count + i] != 0;
  }
  if (!any) {
    held_.mul_(step.decay);
    return std::nullopt;
  }
  if (weights_ != weights) {  // constant but for cumulative averages and changing sizes
    weights_ = weights;
    weights_tensor_ = uploaded(weights, held_.device()).view({2, -1});
  }
  return kernels::RunningUpdate{.running = held_,
                                .weights = weights_tensor_,
                                .decay = step.decay,
                                .nonfinite_count = nonfinite,
                                .nonfinite_channels = holding_ == Holding::shares ? spoiled_ : at::Tensor()};
}

at::Tensor RunningPair::summand(const at::Tensor& held) const {
  switch (holding_) {
    case Holding::shares:
      return held;
    case Holding::replica:
      return saved_here_ ? held : at::zeros_like(held);
    case Holding::whole:
      return of_rank0(held);
  }
  return held;
}

at::Tensor RunningPair::share(bool averaged) const {
  return averaged ? at::cat({summand(averaged_), at::zeros_like(spoiled_)})
                  : at::cat({summand(held_), spoiled_});
}

at::Tensor RunningPair::pair_of_sum(const at::Tensor& sum, int ranks) const {
  const at::Tensor pair = sum.narrow(0, 0, 2);
  return ranks == 1 ? pair : at::where(sum.narrow(0, 2, 1) > 0, merged_, pair);
}

void RunningPair::merged(const at::Tensor& pair) {
  merged_ = pair.clone();
  if (holding_ == Holding::shares) {
    held_ = of_rank0(pair);
    spoiled_ = at::zeros_like(spoiled_);
  }
}

void RunningPair::average(double decay) {
  averaged_ = averaged_ * decay + held_ * (1 - decay);
}

void RunningPair::describe(State& state, const std::string& path) {
  const Across ranks = holding_ == Holding::shares    ? Across::sum
                       : holding_ == Holding::replica ? Across::own
                                                      : Across::same;
  const at::Tensor updates = at::full({}, updates_, at::kLong);
  state.tensor(path + ".held", held_, ranks);
  state.tensor(path + ".averaged", averaged_, ranks);
  state.tensor(path + ".merged", merged_);
  state.tensor(path + ".spoiled", spoiled_, Across::sum);
  state.tensor(path + ".updates", updates, holding_ == Holding::replica ? Across::own : Across::same);
  state.value(path + ".trained", trained_);
  updates_ = updates.item<int64_t>();
  if (!state
           .same_ranks()) {  // rank 0 holds the sum of the shares, in which spoiled channels are as in a merge
    held_ = at::where(spoiled_ > 0, merged_, held_);
    spoiled_.zero_();
  }
}

}  // namespace bnlab
