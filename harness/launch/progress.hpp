// How far a matrix is, and how long it will take. While it runs the user sees on standard error: on a
// terminal one line that is kept up to date, elsewhere a plain line now and then, and a line for every run
// that has ended.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/launch/placing.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// Follows a run's metrics.jsonl while it is being written.
class MetricsTail {
 public:
  explicit MetricsTail(std::string file) : file_(std::move(file)) {}

  // Reads the lines that were completed since the last call. The file need not exist yet.
  void read_on();

  int64_t step() const { return step_; }
  double epoch() const { return epoch_; }
  std::optional<double> loss() const { return loss_; }  // in the last "train" line; nothing if not finite

 private:
  std::string file_;
  int64_t offset_ = 0;
  int64_t step_ = 0;
  double epoch_ = 0;
  std::optional<double> loss_;
};

class Progress {
 public:
  // `runs` runs are to be done, which are `work` in all (work_of), `jobs` at a time.
  Progress(int runs, double work, int jobs);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void say(const std::string& line);
  void started(const RunSpec& run, const std::string& metrics_file);
  void dropped(const RunSpec& run, const std::string& why);  // the run is not this process's to make
  // `result` is that of the record, for the headline metric.
  void finished(const RunSpec& run, const Outcome& outcome, double wall_time_s, const Json& result);
  void update();  // reads how far the runs are; cheap, to be called often

 private:
  using Clock = std::chrono::steady_clock;
  struct Active {
    RunSpec run;
    MetricsTail tail;
    Clock::time_point start;
  };

  std::string counts() const;
  std::string latest(const Active& active) const;
  static double share_done(const Active& active);
  double seconds_left() const;  // NaN while nothing is known
  void draw();
  void clear();
  void paint(const char* colour, const std::string& text);

  int runs_;
  const int jobs_;
  const bool terminal_;
  const bool colour_;
  int done_ = 0;
  int failed_ = 0;
  double work_left_;  // in runs that have not ended
  double measured_work_ = 0;
  double measured_seconds_ = 0;
  std::list<Active> active_;
  Clock::time_point next_draw_;
  bool drawn_ = false;
};

// A measure of a run's cost, for the estimate of the time left: the images it trains on, or its epochs
// where the spec counts in those.
double work_of(const RunSpec& run);

// How long runs will take, judged by finished ones.
class ExpectedTime {
 public:
  // The records are of runs that ended ok and say how many images they trained on.
  explicit ExpectedTime(const std::vector<Record>& records);

  // The mean time per image (or epoch) of the finished runs most like this one, times its own images. Most
  // alike are runs of the same strategy and placement, then those of the same placement, then any. Nothing if
  // no run has finished.
  std::optional<double> seconds(const PlacedRun& run) const;

 private:
  using Like = std::pair<std::string, std::string>;  // strategy and placement; empty: any
  struct Sum {
    double seconds = 0, images = 0, epochs = 0;
  };

  // The most alike first.
  static std::array<Like, 3> likes(const std::string& strategy, const std::string& placement);

  std::map<Like, Sum> sums_;
};

// "21 s", "3 min 20 s", "2 h 5 min"
std::string duration_text(double seconds);

// "mean_iou 0.712" of a record's result, or "" if it has none.
std::string headline_text(const Json& result);

}  // namespace bnlab
