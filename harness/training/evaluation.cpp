// Evaluation and the result of a Trainer: the metric over every test sample exactly once, from one tensor
// summed over all ranks, under each population that the spec asks for.
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "harness/training/memory.hpp"
#include "harness/training/precision.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

// The last group of test samples may be smaller than a training batch: towers are filled in order.
std::vector<int64_t> fill(const std::vector<int64_t>& capacity, int64_t samples) {
  std::vector<int64_t> filled;
  for (const int64_t c : capacity) {
    filled.push_back(std::min(c, samples));
    samples -= filled.back();
  }
  return filled;
}

Json traffic_per_step(Ledger& ledger, int64_t steps) {
  Json all = Json::object();
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const Traffic& traffic = ledger.of(static_cast<Purpose>(p));
    const auto purpose = static_cast<Purpose>(p);
    if (purpose != Purpose::evaluation && purpose != Purpose::control) {
      all[kPurposeNames[p]] = {
          {"collectives_per_step", static_cast<double>(traffic.collectives) / static_cast<double>(steps)},
          {"bytes_per_step", static_cast<double>(traffic.bytes) / static_cast<double>(steps)}};
    }
  }
  return all;
}

}  // namespace

Json Trainer::measure(Mode mode) {
  const at::NoGradGuard no_grad;
  const Autocast autocast(spec_.precision, world_.device().type());
  const int64_t group = towers_.total_samples();
  at::Tensor measured;
  for (int64_t begin = 0; begin < task_->test_samples(); begin += group) {
    const int64_t samples = std::min(group, task_->test_samples() - begin);
    const Towers towers(fill(spec_.samples_per_tower, samples), world_.size(), world_.rank());
    const int64_t first = begin + towers.local_begin();
    const Examples examples = task_->test(first, towers.local_samples());
    const Batch batch{
        examples.images.to(world_.device(), parameter_type(spec_.precision), /*non_blocking=*/false,
                           /*copy=*/false, bnlab::memory_format(spec_.memory_format)),
        examples.labels.to(world_.device()), towers};
    const at::Tensor outputs = strategy_->forward(*network_, batch, {steps_done_, steps_}, mode);
    const at::Tensor part = task_->measure(outputs, batch.labels, first);
    measured = measured.defined() ? measured + part : part;
  }
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return task_->metrics(measured);
}

void Trainer::evaluate() {
  world_.ledger().evaluating(true);
  strategy_->before_eval(*network_);
  Json headline = Json::object();
  for (const std::string& population : spec_.populations) {
    if (population != "saved" && !strategy_->has_running_statistics()) {
      continue;  // such a strategy normalises alike in training and evaluation: "saved" says it all
    }
    const Json metrics = measure(population == "saved" ? Mode::evaluate_saved : Mode::evaluate_batch);
    log_.write({{"kind", "eval"},
                {"step", steps_done_},
                {"epoch", epoch()},
                {"population", population},
                {"metrics", metrics}});
    headline[population] = metrics.at(task_->headline());
    final_[population] = metrics;
  }
  history_.push_back({{"step", steps_done_},
                      {"epoch", epoch()},
                      {"train_loss", reported_loss_},
                      {task_->headline(), headline}});
  world_.ledger().evaluating(false);
}

std::vector<NamedTensor> Trainer::weights() const {
  std::vector<NamedTensor> all;
  for (const auto& p : network_->named_parameters()) {
    all.push_back({p.key(), p.value()});
  }
  for (const auto& b : network_->named_buffers()) {
    all.push_back({b.key(), b.value()});
  }
  return all;
}

Json Trainer::result() {
  Communicator& all = world_.gradients();
  const at::Tensor own =
      at::tensor({peak_memory_bytes(world_.device()), peak_rss_bytes(), strategy_->nonfinite_channels()},
                 at::kLong)
          .to(world_.device());
  const int64_t timed = std::max<int64_t>(steps_done_ - std::min(spec_.warmup_steps, steps_done_), 1);
  const Json communication = traffic_per_step(world_.ledger(), timed);
  const at::Tensor ranks = all.all_gather(own, Purpose::control).cpu();  // [ranks, 3]
  const auto column = [&](int64_t i) {
    const at::Tensor c = ranks.select(1, i).contiguous();
    return std::vector<int64_t>(c.const_data_ptr<int64_t>(), c.const_data_ptr<int64_t>() + c.numel());
  };
  int64_t parameters = 0;
  for (const at::Tensor& p : network_->parameters()) {
    parameters += p.numel();
  }
  const double tail = std::accumulate(tail_losses_.begin(), tail_losses_.end(), 0.0);
  Json result = {
      {"steps", steps_done_},
      {"epochs", epoch()},
      {"images", steps_done_ * towers_.total_samples()},
      {"sites", sites_},
      {"parameters", parameters},
      {"final", final_},
      {"headline", task_->headline()},
      {"train_loss", tail_losses_.empty() ? reported_loss_ : tail / static_cast<double>(tail_losses_.size())},
      {"history", history_}};
  result["throughput"] = timer_.throughput(spec_.warmup_steps, towers_.total_samples(), all);
  result["memory"] = {{"peak_memory_bytes", column(0)}, {"peak_rss_bytes", column(1)}};
  result["communication"] = communication;
  const std::vector<int64_t> nonfinite = column(2);
  result["nonfinite_channels"] = std::accumulate(nonfinite.begin(), nonfinite.end(), int64_t{0});
  return result;
}

}  // namespace bnlab
