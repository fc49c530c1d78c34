// Times of runs that take short turns in one world of ranks, so that whatever slows the machine down slows
// all of them. In a round each run has one turn, in an order that is drawn anew, so that none always follows
// the same one. The last two runs are the same one, made twice: every other run is compared with the mean of
// their logarithms, and how far these two differ from each other says how small a difference can be told.
//
// A turn is one step that is not timed, because the caches hold another run's data, and then as many steps as
// take about `turn_s`. Its time is that of the slowest rank, per step. Rounds go on until every run has been
// timed long enough and all ratios are known well enough (Timing, harness/experiment/spec.hpp), or until
// `limit_s`. A round in which other processes or other machines took more than kMostTaken of the cores' time
// is measured again; where the limit leaves fewer than kFewestRounds others, these rounds count, too, and the
// times are marked as disturbed.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {

inline constexpr double kMostTaken = 0.05;
inline constexpr size_t kFewestRounds = 6;

// A round of turns: what was measured, on all ranks the same.
struct Round {
  std::vector<double> step_s;
  double others = 0;  // share of the cores' time that other processes took, on the host where it was most
  double steal = 0;   // what other machines took

  bool disturbed() const { return others + steal > kMostTaken; }
};

// The rounds that count, from all that were measured.
std::vector<Round> rounds_that_count(const std::vector<Round>& all);

// The mean over the rounds of the logarithm of how many times faster a run is than the last two, and its
// standard error. Of the last but one: how many times faster than the last.
struct LogRatio {
  double mean = 0, standard_error = 0;
};
LogRatio log_ratio(const std::vector<Round>& rounds, size_t run);

// The part "timing" of a run's record, and what it says of its throughput.
struct TurnTimes {
  Json timing, throughput;
};

// The times of all runs but the last two. Called by every rank.
std::vector<TurnTimes> time_in_turns(const Timing& timing, World& world, const std::vector<Trainer*>& runs);

}  // namespace bnlab
