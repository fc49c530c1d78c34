#include "harness/training/history.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace bnlab {

History::History(RunLog log, const Data& data, World& world, at::ScalarType loss_type)
    : log_(std::move(log)),
      data_(data),
      world_(world),
      loss_sum_(at::zeros({}, at::TensorOptions().device(world.device()).dtype(loss_type))) {}

void History::add(const at::Tensor& loss) {
  loss_sum_ += loss.detach();
}

void History::report(int64_t steps_done, double learning_rate, const at::Tensor& gradient_norm) {
  at::Tensor sum = loss_sum_.to(at::kDouble) / static_cast<double>(world_.size());
  world_.gradients().all_reduce(sum, Purpose::loss);
  reported_loss_ = sum.item<double>() / static_cast<double>(steps_done - steps_reported_);
  loss_sum_.zero_();
  steps_reported_ = steps_done;
  if (steps_done > data_.steps() - std::max<int64_t>(data_.steps() / 10, 1)) {
    tail_losses_.push_back(reported_loss_);
  }
  diverged_ = !std::isfinite(reported_loss_);
  log_.write({{"kind", "train"},
              {"step", steps_done},
              {"epoch", data_.epochs(steps_done)},
              {"loss", reported_loss_},
              {"lr", learning_rate},
              {"gradient_norm", gradient_norm.item<double>()}});
}

void History::add_evaluation(int64_t steps_done, const Json& metrics_of_populations) {
  const std::string headline = data_.task().headline();
  Json headlines = Json::object();
  for (const auto& [population, metrics] : metrics_of_populations.items()) {
    log_.write({{"kind", "eval"},
                {"step", steps_done},
                {"epoch", data_.epochs(steps_done)},
                {"population", population},
                {"metrics", metrics}});
    headlines[population] = metrics.at(headline);
    final_[population] = metrics;
  }
  evaluations_.push_back({{"step", steps_done},
                          {"epoch", data_.epochs(steps_done)},
                          {"train_loss", reported_loss_},
                          {headline, headlines}});
}

void History::describe(State& state) {
  state.tensor("history.loss_sum", loss_sum_, Across::mean);
  state.value("history.steps_reported", steps_reported_);
  state.value("history.reported_loss", reported_loss_);
  state.value("history.tail_losses", tail_losses_);
  state.value("history.evaluations", evaluations_);
  state.value("history.final", final_);
  log_.describe(state);
}

Json History::summary() const {
  const double sum = std::accumulate(tail_losses_.begin(), tail_losses_.end(), 0.0);
  return {
      {"final", final_},
      {"headline", data_.task().headline()},
      {"train_loss", tail_losses_.empty() ? reported_loss_ : sum / static_cast<double>(tail_losses_.size())},
      {"history", evaluations_}};
}

}  // namespace bnlab
