// What a run tells of its training: losses and evaluations, line by line in metrics.jsonl while it is under
// way, and in the record at its end.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/state.hpp"
#include "harness/support/json.hpp"
#include "harness/training/data.hpp"

namespace bnlab {

// metrics.jsonl: one JSON object per line, which is in the file as soon as it is written. Rank 0 writes; on
// the other ranks nothing happens.
class RunLog {
 public:
  RunLog() = default;  // writes nothing
  // Begins a new file. A run that goes on from a checkpoint leaves the file as it is until describe() finds
  // the place to go on from. All functions throw Error (environment), which names the file and the cause,
  // where the system refuses.
  RunLog(const std::string& file, const std::string& run_id, bool goes_on = false);

  // Adds "time_s": the seconds since the log began, without the time between the parts of a run that was cut
  // short.
  void write(Json line);
  void sync();  // until all of it is on the disk
  // How long the log is, once all of it is on the disk. A run that goes on writes anew what lies behind that
  // place.
  void describe(State& state);

 private:
  using Clock = std::chrono::steady_clock;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  std::unique_ptr<std::FILE, Close> out_;  // null: writes nothing
  Clock::time_point begin_ = Clock::now();
};

class History {
 public:
  History(RunLog log, const Data& data, World& world, at::ScalarType loss_type);

  void add(const at::Tensor& loss);  // one step, as this rank weighs it
  // Reports the mean loss since the last report, and the norm that all gradients of the last step had
  // together before any clipping. Called by every rank; waits for the device.
  void report(int64_t steps_done, double learning_rate, const at::Tensor& gradient_norm);
  void add_evaluation(int64_t steps_done, const Json& metrics_of_populations);
  // The same on the validation split; and of the weights that were selected there, after so many steps, on
  // the test split, which is no point of a curve.
  void add_validation(int64_t steps_done, const Json& metrics_of_populations);
  void add_test(int64_t steps_done, const Json& metrics_of_populations);

  void describe(State& state);
  void end() { log_.sync(); }  // after the last line

  bool diverged() const { return diverged_; }  // a reported loss was not finite
  // For the record: {"final", "headline", "train_loss", "history"}.
  Json summary() const;

 private:
  void write(Json line, int64_t steps_done, const Json& metrics_of_populations);
  void add_point(int64_t steps_done, const Json& metrics_of_populations, const Json& split);

  RunLog log_;
  const Data& data_;
  World& world_;
  at::Tensor loss_sum_;  // since the last report
  int64_t steps_reported_ = 0;
  std::optional<double> reported_loss_;  // none before the first report
  std::vector<double> tail_losses_;      // reports in the last tenth of the steps
  bool diverged_ = false;
  Json evaluations_ = Json::array();
  Json final_ = Json::object();
};

}  // namespace bnlab
