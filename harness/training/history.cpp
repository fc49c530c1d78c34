#include "harness/training/history.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

RunLog::RunLog(const std::string& file, const std::string& run_id, bool goes_on)
    : file_(file), out_(std::fopen(file.c_str(), goes_on ? "r+" : "w")) {
  if (!out_) fail("open");
  if (!goes_on) write({{"kind", "start"}, {"schema_version", 1}, {"run_id", run_id}});
}

void RunLog::write(Json line) {
  if (out_) {
    line["time_s"] = seconds();
    const std::string text = line.dump() + "\n";
    if (std::fwrite(text.data(), 1, text.size(), out_.get()) != text.size() || std::fflush(out_.get()) != 0)
      fail("write");
  }
}

void RunLog::sync() {
  if (out_ && ::fsync(::fileno(out_.get())) != 0) fail("write");
}

void RunLog::describe(State& state) {
  if (!state.goes_on()) sync();
  int64_t bytes = out_ ? std::ftell(out_.get()) : 0;
  double time_s = seconds();
  state.value("metrics.bytes", bytes);
  state.value("metrics.time_s", time_s);
  if (!state.goes_on()) return;
  begin_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_s));
  if (out_ && (::ftruncate(::fileno(out_.get()), bytes) != 0 || std::fseek(out_.get(), bytes, SEEK_SET) != 0))
    fail("cut");
}

void RunLog::fail(const std::string& what) const {
  throw Error(Error::Kind::environment, "cannot " + what + " " + file_ + ": " + std::strerror(errno));
}

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
  const double loss = sum.item<double>() / static_cast<double>(steps_done - steps_reported_);
  reported_loss_ = loss;
  loss_sum_.zero_();
  steps_reported_ = steps_done;
  if (steps_done > data_.steps() - std::max<int64_t>(data_.steps() / 10, 1)) tail_losses_.push_back(loss);
  diverged_ = !std::isfinite(loss);
  log_.write({{"kind", "train"},
              {"step", steps_done},
              {"epoch", data_.epochs(steps_done)},
              {"loss", loss},
              {"lr", learning_rate},
              {"gradient_norm", gradient_norm.item<double>()}});
}

void History::add_evaluation(int64_t steps_done, const Json& metrics_of_populations) {
  final_ = metrics_of_populations;
  write({{"kind", "eval"}}, steps_done, metrics_of_populations);
  add_point(steps_done, metrics_of_populations, Json::object());
}

void History::add_validation(int64_t steps_done, const Json& metrics_of_populations) {
  write({{"kind", "eval"}, {"split", "validation"}}, steps_done, metrics_of_populations);
  add_point(steps_done, metrics_of_populations, {{"split", "validation"}});
}

void History::add_test(int64_t steps_done, const Json& metrics_of_populations) {
  final_ = metrics_of_populations;
  write({{"kind", "test"}}, steps_done, metrics_of_populations);
}

void History::write(Json line, int64_t steps_done, const Json& metrics_of_populations) {
  for (const auto& [population, metrics] : metrics_of_populations.items()) {
    line["step"] = steps_done;
    line["epoch"] = data_.epochs(steps_done);
    line["population"] = population;
    line["metrics"] = metrics;
    log_.write(line);
  }
}

void History::add_point(int64_t steps_done, const Json& metrics_of_populations, const Json& split) {
  const std::string headline = data_.task().headline();
  Json headlines = Json::object();
  for (const auto& [population, metrics] : metrics_of_populations.items())
    headlines[population] = metrics.at(headline);
  Json point = {{"step", steps_done},
                {"epoch", data_.epochs(steps_done)},
                {"train_loss", number_or_null(reported_loss_)},
                {headline, headlines}};
  point.update(split);
  evaluations_.push_back(point);
}

void History::describe(State& state) {
  state.tensor("history.loss_sum", loss_sum_, Across::mean);
  state.value("history.steps_reported", steps_reported_);
  Json loss = number_or_null(reported_loss_);
  state.json("history.reported_loss", loss);
  reported_loss_ = loss.is_number() ? std::optional(loss.get<double>()) : std::nullopt;
  state.value("history.tail_losses", tail_losses_);
  state.value("history.evaluations", evaluations_);
  state.value("history.final", final_);
  log_.describe(state);
}

Json History::summary() const {
  const auto reports = static_cast<double>(tail_losses_.size());
  const double sum = std::accumulate(tail_losses_.begin(), tail_losses_.end(), 0.0);
  return {{"final", final_},
          {"headline", data_.task().headline()},
          {"train_loss", tail_losses_.empty() ? number_or_null(reported_loss_) : Json(sum / reports)},
          {"history", evaluations_}};
}

}  // namespace bnlab
