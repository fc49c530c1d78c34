#include "harness/training/timing/turns.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>

#include "harness/store/this_process.hpp"
#include "harness/support/machine_load.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/timing/step_timer.hpp"

namespace bnlab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTrialSteps = 3;  // from which the length of a turn is judged

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

class Turns {
 public:
  Turns(const Timing& timing, World& world, const std::vector<Trainer*>& runs)
      : timing_(timing), world_(world), runs_(runs), steps_(runs.size(), 1), order_(runs.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  void measure() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      const double step = step_s(run, kTrialSteps);
      steps_[run] = std::max<int64_t>(1, std::llround(timing_.turn_s / step));
    }
    do {
      rounds_.push_back(round());
    } while (!enough());
    std::ranges::for_each(runs_, [](Trainer* run) { run->end_repeats(); });
  }

  const std::vector<Round>& rounds() const { return rounds_; }
  int64_t steps_of_turn(size_t run) const { return steps_[run]; }

 private:
  // The numbers of all ranks, [ranks, numbers], on every rank.
  at::Tensor of_all_ranks(const std::vector<double>& own) {
    const at::Tensor numbers = torch::tensor(own, at::kDouble).to(world_.device());
    return world_.gradients().all_gather(numbers, Purpose::control).cpu();
  }

  void wait_for_device() const {
    if (const at::Device device = world_.device(); !device.is_cpu())
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }

  // The time of a step of this run on the slowest rank, as the mean of some.
  double step_s(size_t run, int64_t steps) {
    runs_[run]->repeat_steps(1);
    wait_for_device();
    const Clock::time_point start = Clock::now();
    runs_[run]->repeat_steps(steps);
    wait_for_device();
    const at::Tensor all =
        of_all_ranks({seconds_since(start) / static_cast<double>(steps), seconds_since(begin_)});
    elapsed_s_ = all[0][1].item<double>();  // rank 0 decides, so that all ranks end in the same round
    return all.select(1, 0).max().item<double>();
  }

  Round round() {
    const CoreTime cores = core_time();
    const double own = own_core_time();
    Round round;
    round.step_s.resize(runs_.size());
    std::ranges::shuffle(order_, random_);
    for (const size_t run : order_) round.step_s[run] = step_s(run, steps_[run]);
    add_load(round, core_time() - cores, own_core_time() - own);
    return round;
  }

  void add_load(Round& round, const CoreTime& cores, double own) {
    static const double host =
        static_cast<double>(std::hash<std::string>{}(this_host() + this_machine()) >> 12);
    const at::Tensor all = of_all_ranks({host, own, cores.busy, cores.steal, cores.idle});
    const auto number = [&](int64_t rank, int64_t of) { return all[rank][of].item<double>(); };
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      double ours = 0;
      for (int64_t other = 0; other < all.size(0); ++other)
        ours += number(other, 0) == number(rank, 0) ? number(other, 1) : 0;
      const double busy = number(rank, 2), steal = number(rank, 3), total = busy + steal + number(rank, 4);
      if (total > 0) {
        round.others = std::max(round.others, (busy - ours) / total);
        round.steal = std::max(round.steal, steal / total);
      }
    }
  }

  bool enough() const {
    if (elapsed_s_ > timing_.limit_s && rounds_.size() >= kFewestRounds) return true;
    std::vector<Round> good;
    std::ranges::copy_if(rounds_, std::back_inserter(good),
                         [](const Round& round) { return !round.disturbed(); });
    if (good.size() < kFewestRounds) return false;
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto steps = static_cast<int64_t>(good.size()) * steps_[run];
      const double seconds =
          static_cast<double>(steps) * mean_of(mapped(good, [&](const Round& r) { return r.step_s[run]; }));
      const bool is_last = run + 1 == runs_.size();  // which the last but one is compared with
      if (steps < timing_.steps || seconds < timing_.seconds ||
          (!is_last && 2 * log_ratio(good, run).standard_error > timing_.error)) {
        return false;
      }
    }
    return true;
  }

  const Timing& timing_;
  World& world_;
  const std::vector<Trainer*>& runs_;
  std::vector<int64_t> steps_;  // in a turn
  std::vector<size_t> order_;   // runs in a round
  std::mt19937 random_;         // seeded alike on all ranks
  std::vector<Round> rounds_;
  const Clock::time_point begin_ = Clock::now();
  double elapsed_s_ = 0;
};

Json in_ms(const std::vector<double>& seconds) {
  return mapped(seconds, [](double s) { return 1000 * s; });
}

}  // namespace

std::vector<Round> rounds_that_count(const std::vector<Round>& all) {
  std::vector<Round> good;
  std::ranges::copy_if(all, std::back_inserter(good), [](const Round& round) { return !round.disturbed(); });
  return good.size() >= kFewestRounds ? good : all;
}

LogRatio log_ratio(const std::vector<Round>& rounds, size_t run) {
  const auto of = [run](const Round& round) {
    const size_t runs = round.step_s.size();
    const double first = std::log(round.step_s[runs - 2]), second = std::log(round.step_s[runs - 1]);
    return (run == runs - 2 ? second : (first + second) / 2) - std::log(round.step_s[run]);
  };
  const std::vector<double> ratios = mapped(rounds, of);
  const auto n = static_cast<double>(ratios.size());
  LogRatio result{mean_of(ratios), 0};
  for (const double ratio : ratios) result.standard_error += (ratio - result.mean) * (ratio - result.mean);
  result.standard_error = std::sqrt(result.standard_error / std::max(1.0, n - 1) / n);
  return result;
}

std::vector<TurnTimes> time_in_turns(const Timing& timing, World& world, const std::vector<Trainer*>& runs) {
  const double load = load_average();
  Turns turns(timing, world, runs);
  turns.measure();
  const std::vector<Round> rounds = rounds_that_count(turns.rounds());
  const auto steps_of = [&](size_t run) {
    return mapped(rounds, [run](const Round& r) { return r.step_s[run]; });
  };
  const size_t copies = runs.size() - 2;  // the first of the two
  const auto images_of = [&](size_t run) { return static_cast<double>(runs[run]->images_per_step()); };
  const LogRatio same = log_ratio(rounds, copies);
  std::vector<TurnTimes> times;
  for (size_t run = 0; run < copies; ++run) {
    const std::vector<double> own = steps_of(run);
    const LogRatio ratio = log_ratio(rounds, run);
    const auto steps = static_cast<int64_t>(rounds.size()) * turns.steps_of_turn(run);
    const double median = quantile(own, 0.5);
    times.push_back(
        {{{"log_images_per_s", ratio.mean + std::log(images_of(run) / images_of(copies))},
          {"log_images_per_s_error", 2 * ratio.standard_error},
          {"same_log_images_per_s", same.mean},
          {"same_log_images_per_s_error", 2 * same.standard_error},
          {"rounds", rounds.size()},
          {"rounds_left_out", turns.rounds().size() - rounds.size()},
          {"disturbed", std::ranges::any_of(rounds, &Round::disturbed)},
          {"others", mean_of(mapped(rounds, &Round::others))},
          {"steal", mean_of(mapped(rounds, &Round::steal))},
          {"load_average", {load, load_average()}},
          {"steps", steps},
          {"seconds", static_cast<double>(steps) * mean_of(own)},
          {"step_ms", in_ms(own)},
          {"against_step_ms", {in_ms(steps_of(copies)), in_ms(steps_of(copies + 1))}}},
         {{"images_per_s", images_of(run) / median},
          {"step_time_s", {{"median", median}, {"p10", quantile(own, 0.1)}, {"p90", quantile(own, 0.9)}}},
          {"steps_measured", steps}}});
  }
  return times;
}

}  // namespace bnlab
