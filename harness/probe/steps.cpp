#include "harness/probe/steps.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "harness/communicator/counting_world.hpp"
#include "harness/counting/operations.hpp"
#include "harness/error.hpp"
#include "harness/probe/turns.hpp"
#include "harness/tf32.hpp"
#include "harness/training/peak_memory.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

constexpr int64_t kManySteps = 1'000'000;                 // of the run that the measured steps begin
constexpr int64_t kWarmUp = 8;                            // on a GPU a step is recorded within them
constexpr int64_t kTurns = 2;                             // of a round
constexpr int64_t kFewestSamples = 2, kMostSamples = 12;  // samples of a turn
constexpr int64_t kMostOwnSamples = 400;                  // of a step alone
constexpr int64_t kStepsOfASample = 10;                   // on a GPU, which is waited for after a sample only

// A trainer that makes steps and nothing else.
class Stepper {
 public:
  Stepper(const RunSpec& run, const std::string& data_dir, World& world)
      : run_(run),
        world_(world),
        checkpoints_(run_, nullptr, "", world),
        trainer_(run_, data_dir, world, checkpoints_, RunLog()),
        steps_(world.device().is_cpu() ? 1 : kStepsOfASample) {}

  void step(int64_t steps) { trainer_.train_steps(steps); }

  // Seconds of a step, so many samples of it.
  std::vector<double> times(int64_t samples) {
    std::vector<double> times;
    for (int64_t i = 0; i < samples; ++i) {
      const double seconds = seconds_of(world_.device(), [&] { trainer_.train_steps(steps_); });
      times.push_back(seconds / static_cast<double>(steps_));
    }
    return times;
  }

  // Seconds of the parts of a step, on rank 0 of its world.
  Json parts() {
    const Json times = trainer_.step_times();
    return times.is_null() ? times : times.at("seconds");
  }
  std::vector<std::string> notes() const { return trainer_.notes(); }

 private:
  const RunSpec run_;
  World& world_;
  Checkpoints checkpoints_;
  Trainer trainer_;
  int64_t steps_;
};

// What a step hands over: [{"op", "purpose", "bytes", "count"}]. Where weights are averaged every few steps,
// counts are shares of one.
Json exchanges_of(Stepper& stepper, Ledger& ledger, int64_t steps) {
  ledger.clear();
  ledger.keep_list(true);
  stepper.step(steps);
  ledger.keep_list(false);
  std::map<std::tuple<std::string, std::string, int64_t>, int64_t> counts;
  for (const Collective& collective : ledger.list())
    if (collective.purpose != Purpose::control && collective.purpose != Purpose::evaluation)
      ++counts[{collective.op, kPurposeNames[static_cast<size_t>(collective.purpose)], collective.bytes}];
  Json list = Json::array();
  for (const auto& [exchange, count] : counts) {
    const auto& [op, purpose, bytes] = exchange;
    list.push_back({{"op", op},
                    {"purpose", purpose},
                    {"bytes", bytes},
                    {"count", static_cast<double>(count) / static_cast<double>(steps)}});
  }
  return list;
}

// What a step computes and moves; null on a GPU, whose backward pass another thread makes.
Json operations_of_a_step(Stepper& stepper, at::Device device) {
  if (!device.is_cpu()) return nullptr;
  const Operations operations = operations_of([&] { stepper.step(1); });
  return {{"flops", operations.flops},
          {"matrix_bytes", operations.matrix_bytes},
          {"other_bytes", operations.other_bytes}};
}

Json described(const RunSpec& run, int ranks) {
  return {{"run", run.id},
          {"strategy", label(run.strategy)},
          {"model", label(run.model, "model")},
          {"ranks", ranks},
          {"images_per_rank", run.samples_per_tower.front()},
          {"gradient_route", name_of(run.gradient_route)}};
}

// A world without other ranks, and the rank's own steps in it.
struct Alone {
  Alone(const RunSpec& run, int ranks, at::Device device, const std::string& data_dir)
      : world(ranks, device), stepper(run, data_dir, world) {}

  // Seconds of a step, without what this world took to answer the step's exchanges: it copies and sums as
  // much as a real one, whose time is measured for itself. On a GPU the answers are left in: they wait in
  // its stream.
  std::vector<double> times(int64_t samples) {
    std::vector<double> times;
    for (int64_t i = 0; i < samples; ++i) {
      const double before = seconds_of_answers();
      const double all = stepper.times(1).front();
      times.push_back(world.device().is_cpu() ? all - (seconds_of_answers() - before) : all);
    }
    return times;
  }

  CountingWorld world;
  Stepper stepper;

 private:
  double seconds_of_answers() {
    int64_t ns = 0;
    for (size_t i = 0; i < kPurposeNames.size(); ++i)
      ns += world.ledger().of(static_cast<Purpose>(i)).host_ns;
    return static_cast<double>(ns) * 1e-9;
  }
};

// Makes the rank's own steps; where `step` is null, says there what a step of it is, but for its times.
std::unique_ptr<Alone> set_up(const RunSpec& run, int ranks, at::Device device, const std::string& data_dir,
                              Json& step, int64_t warm_up = kWarmUp) {
  reset_peak_memory(device);
  const int64_t held = peak_memory_bytes(device);
  auto alone = std::make_unique<Alone>(run, ranks, device, data_dir);
  alone->stepper.step(1);
  const bool first = step.is_null();
  if (first) {
    step = described(run, ranks);
    step["operations"] = operations_of_a_step(alone->stepper, device);
    step["exchanges"] =
        exchanges_of(alone->stepper, alone->world.ledger(), std::max<int64_t>(run.average_weights_every, 1));
  }
  alone->stepper.step(warm_up);
  if (first) {
    step["peak_memory_bytes"] = peak_memory_bytes(device) - held;
    step["notes"] = alone->stepper.notes();
  }
  return alone;
}

Json refused(const RunSpec& run, int ranks, const std::string& why) {
  Json step = described(run, ranks);
  step["refused"] = why;
  return step;
}

}  // namespace

void prepare_to_measure(int threads) {
  account_cpu_memory();
  at::set_num_threads(threads);
}

std::vector<RunSpec> runs_to_measure(const std::vector<RunSpec>& runs, int ranks) {
  std::vector<RunSpec> chosen;
  std::set<std::string> seen;
  for (RunSpec run : runs) {
    const int64_t images = std::ranges::max(run.samples_per_tower);
    Json cell = run.resolved;
    for (const char* key : {"seed", "towers", "steps", "epochs"}) cell.erase(key);
    cell["batch_per_tower"] = images;
    if (!seen.insert(cell.dump()).second) continue;
    run.samples_per_tower.assign(static_cast<size_t>(ranks), images);
    run.steps = kManySteps;
    run.epochs.reset();
    run.eval_every = 0;
    run.checkpoint_every = 0;
    run.log_every = kManySteps;
    run.populations = {"saved"};
    chosen.push_back(std::move(run));
  }
  return chosen;
}

Json own_step(const RunSpec& run, int ranks, Device device, const std::string& data_dir, double seconds) {
  const at::Device where(device == Device::cuda ? at::kCUDA : at::kCPU);
  allow_tf32(run.tf32);
  try {
    const double until = seconds_now() + seconds;
    Json step;
    const auto alone = set_up(run, ranks, where, data_dir, step, seconds > 0 ? kWarmUp : 0);
    const double once = alone->stepper.times(1).front();
    step["own_s"] = spread_of(
        alone->times(repeats_within(until - seconds_now(), once, seconds > 0 ? 5 : 1, kMostOwnSamples)));
    step["parts_s"] = alone->stepper.parts();
    return step;
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::refused) throw;
    return refused(run, ranks, error.what());
  }
}

void measure_steps(const RunSpec& run, World& world, const std::string& data_dir, double seconds,
                   StepSamples& samples) {
  if (samples.step.contains("refused")) return;
  allow_tf32(run.tf32);
  const at::Device device = world.device();
  Communicator& communicator = world.gradients();
  std::unique_ptr<Alone> alone;
  std::unique_ptr<Stepper> together;
  try {  // what refuses a run refuses it on every rank
    alone = set_up(run, world.size(), device, data_dir, samples.step);
    together = std::make_unique<Stepper>(run, data_dir, world);
    together->step(kWarmUp);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::refused) throw;
    samples.step = refused(run, world.size(), error.what());
    return;
  }
  const double once = alone->stepper.times(1).front() + together->times(1).front();
  const int64_t count =
      agreed(repeats_within(seconds / kTurns, once, kFewestSamples, kMostSamples), device, communicator);
  std::vector<double> own, all;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    const auto own_turn = [&] {
      world.barrier();
      append(own, alone->times(count));
    };
    const auto together_turn = [&] {
      world.barrier();
      append(all, together->times(count));
    };
    if (turn % 2 == 0)
      own_turn(), together_turn();
    else
      together_turn(), own_turn();
  }
  const OverRanks own_of_ranks = over_ranks(own, device, communicator);
  append(samples.own, own_of_ranks.mean);
  for (size_t i = 0; i < own.size(); ++i)
    samples.apart.push_back(own_of_ranks.largest[i] - own_of_ranks.mean[i]);
  append(samples.together, over_ranks(all, device, communicator).mean);
  samples.step["parts_s"] = alone->stepper.parts();
  samples.step["together_parts_s"] = together->parts();
}

Json row_of(const StepSamples& samples) {
  Json step = samples.step;
  if (!step.contains("refused")) {
    step["own_s"] = spread_of(samples.own);
    step["apart_s"] = spread_of(samples.apart);
    step["together_s"] = spread_of(samples.together);
  }
  return step;
}

}  // namespace bnlab
