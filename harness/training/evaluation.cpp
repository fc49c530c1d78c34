// Evaluation and the result of a Trainer: the metric over every test sample exactly once, from one tensor
// summed over all ranks, under each population that the spec asks for.
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "harness/error.hpp"
#include "harness/records/run_folder.hpp"
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

std::vector<Trainer::Named> Trainer::populations() const {
  std::vector<Named> all;
  if (strategy_->running_statistics() != nullptr) {
    for (const std::string& name : spec_.populations) {
      all.push_back({name, read_population(name, spec_.precise_batches)});
    }
  } else {
    all.push_back({"saved", {}});  // normalises alike in training and evaluation: this says it all
  }
  if (ema_) {
    Population averaged;
    averaged.averaged = true;
    all.push_back({kAveragedWeights, averaged});
  }
  return all;
}

void Trainer::evaluate() {
  const Json measured = evaluate_under(populations());
  Json headline = Json::object();
  for (const auto& [population, metrics] : measured.items()) {
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
}

Json Trainer::evaluate_as_ended() {
  steps_done_ = steps_;
  return evaluate_under(populations());
}

Json Trainer::evaluate_with_pairs(const std::map<std::string, at::Tensor>& pairs) {
  const at::NoGradGuard no_grad;
  for (auto& buffer : network_->named_buffers()) {
    const auto found = pairs.find(buffer.key());
    if (found == pairs.end() || found->second.sizes() != buffer.value().sizes()) {
      throw Error(Error::Kind::data, std::string(kPopulationsFile) + " has no statistics for " +
                                         buffer.key() + " that fit this model");
    }
    buffer.value().copy_(found->second);
  }
  strategy_->running_statistics()->start_from_buffers();
  return measure({});
}

Json Trainer::evaluate_under(const std::vector<Named>& populations) {
  world_.ledger().evaluating(true);
  Json all = Json::object();
  for (const auto& [name, population] : populations) {
    if (population.averaged) {
      ema_->swap();
    }
    all[name] = measure(population);
    if (population.averaged) {
      ema_->swap();
    }
  }
  show_own();
  world_.ledger().evaluating(false);
  return all;
}

void Trainer::show(const Population& population) {
  if (RunningStatistics* statistics = strategy_->running_statistics()) {
    statistics->show(population, calibration_);
  }
}

void Trainer::show_own() {
  if (RunningStatistics* statistics = strategy_->running_statistics()) {
    statistics->show_own();
  }
}

Json Trainer::measure(const Population& population) {
  const at::NoGradGuard no_grad;
  // One per population: what autocast has cached would not follow a swap of the weights.
  const Autocast autocast(spec_.precision, world_.device().type());
  show(population);
  const Mode mode = population.kind == Population::Kind::batch ? Mode::evaluate_batch : Mode::evaluate_saved;
  const int64_t group = towers_.total_samples();
  at::Tensor measured;
  for (int64_t begin = 0; begin < task_->test_samples(); begin += group) {
    const int64_t samples = std::min(group, task_->test_samples() - begin);
    Batch batch;
    batch.towers = Towers(fill(spec_.samples_per_tower, samples), world_.size(), world_.rank());
    const int64_t first = begin + batch.towers.local_begin();
    const Examples examples = task_->test(first, batch.towers.local_samples());
    batch.images =
        examples.images.to(world_.device(), parameter_type(spec_.precision), /*non_blocking=*/false,
                           /*copy=*/false, bnlab::memory_format(spec_.memory_format));
    batch.labels = examples.labels.to(world_.device());
    batch.index = static_cast<uint64_t>(begin / group);
    const at::Tensor outputs =
        strategy_->forward(*network_, batch.images, batch.pass({steps_done_, steps_}, mode));
    const at::Tensor part = task_->measure(outputs, batch.labels, first);
    measured = measured.defined() ? measured + part : part;
  }
  world_.gradients().all_reduce(measured, Purpose::evaluation);
  return task_->metrics(measured);
}

Json Trainer::result() {
  Communicator& all = world_.gradients();
  const RunningStatistics* statistics = strategy_->running_statistics();
  const int64_t nonfinite = statistics == nullptr ? 0 : statistics->nonfinite_channels();
  const at::Tensor own =
      at::tensor({peak_memory_bytes(world_.device()), peak_rss_bytes(), nonfinite}, at::kLong)
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
      {"shards", spec_.resolved.at("shards")},
      {"parameters", parameters},
      {"final", final_},
      {"headline", task_->headline()},
      {"train_loss", tail_losses_.empty() ? reported_loss_ : tail / static_cast<double>(tail_losses_.size())},
      {"history", history_}};
  result["throughput"] = timer_.throughput(spec_.warmup_steps, towers_.total_samples(), all);
  result["memory"] = {{"peak_memory_bytes", column(0)}, {"peak_rss_bytes", column(1)}};
  result["communication"] = communication;
  const std::vector<int64_t> of_ranks = column(2);
  result["nonfinite_channels"] = std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{0});
  return result;
}

}  // namespace bnlab
