// What a user sees while a matrix runs, on standard error: on a terminal one updating line for the whole
// matrix, elsewhere a plain line now and then; in both, one line per finished run.
#pragma once

#include <chrono>
#include <list>
#include <string>

#include "harness/experiment/spec.hpp"
#include "harness/launch/metrics_tail.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

class Progress {
 public:
  // `runs` of them are to be done, with `work` in all (work_of), `jobs` at a time.
  Progress(int runs, double work, int jobs);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void say(const std::string& line);
  void started(const RunSpec& run, const std::string& metrics_file);
  // `result`: of the record, for the headline metric.
  void finished(const RunSpec& run, const Outcome& outcome, double wall_time_s, const Json& result);
  void update();  // looks what the runs under way have come to; cheap, call it often

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
  std::string painted(const char* colour, const std::string& text) const;

  const int runs_;
  const int jobs_;
  const bool terminal_;
  const bool colour_;
  int done_ = 0;
  int failed_ = 0;
  double work_left_;  // of runs that have not ended
  double measured_work_ = 0;
  double measured_seconds_ = 0;
  std::list<Active> active_;
  Clock::time_point next_draw_;
  bool drawn_ = false;
};

// A measure of a run's cost, for the estimate of the time left: the images it trains on, or its epochs
// where the spec counts in those.
double work_of(const RunSpec& run);

// "21 s", "3 min 20 s", "2 h 5 min"
std::string duration_text(double seconds);

// "mean_iou 0.712" of a record's result, or "" if it has none.
std::string headline_text(const Json& result);

}  // namespace bnlab
