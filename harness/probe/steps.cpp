#include "harness/probe/steps.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "harness/communicator/counting_world.hpp"
#include "harness/counting/operations.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/probe/sites.hpp"
#include "harness/probe/turns.hpp"
#include "harness/support/error.hpp"
#include "harness/support/tf32.hpp"
#include "harness/tasks/task_facts.hpp"
#include "harness/training/peak_memory.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

constexpr int64_t kManySteps = 1'000'000;                 // in the run that the measured steps begin
constexpr int64_t kWarmUp = 8;                            // on a GPU a step is recorded within them
constexpr int64_t kTurns = 2;                             // in a round
constexpr int64_t kFewestSamples = 2, kMostSamples = 12;  // samples of a turn
constexpr int64_t kMostOwnSamples = 400;                  // when a step runs alone
constexpr int64_t kUsualChannels = 64;                    // where a model does not tell those of its sites
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

// What so many steps hand over.
std::vector<Collective> collectives_of(Stepper& stepper, Ledger& ledger, int64_t steps) {
  ledger.clear();
  ledger.keep_list(true);
  stepper.step(steps);
  ledger.keep_list(false);
  return ledger.list();
}

// The same of a step: [{"op", "purpose", "bytes", "count"}]. Where weights are averaged every few steps,
// counts are shares of one.
Json exchanges_of(const std::vector<Collective>& collectives, int64_t steps) {
  std::map<std::tuple<std::string, std::string, int64_t>, int64_t> counts;
  for (const Collective& collective : collectives)
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

// After how many steps what they exchange repeats.
int64_t steps_counted(const RunSpec& run) {
  return std::max<int64_t>(run.average_weights_every, 1);
}

// What a step computes and moves; nothing on a GPU, whose backward pass another thread makes.
std::optional<Operations> operations_of_a_step(Stepper& stepper, at::Device device) {
  return device.is_cpu() ? std::optional(operations_of([&] { stepper.step(1); })) : std::nullopt;
}

Json json_of(const std::optional<Operations>& operations) {
  if (!operations) return nullptr;
  return {{"flops", operations->flops},
          {"matrix_bytes", operations->matrix_bytes},
          {"other_bytes", operations->other_bytes}};
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
                              Json& step) {
  reset_peak_memory(device);
  const int64_t held = peak_memory_bytes(device);
  auto alone = std::make_unique<Alone>(run, ranks, device, data_dir);
  alone->stepper.step(1);
  const bool first = step.is_null();
  if (first) {
    step = described(run, ranks);
    step["operations"] = json_of(operations_of_a_step(alone->stepper, device));
    step["exchanges"] = exchanges_of(
        collectives_of(alone->stepper, alone->world.ledger(), steps_counted(run)), steps_counted(run));
  }
  alone->stepper.step(kWarmUp);
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

// Of steps on images of one size.
struct Count {
  std::vector<Collective> collectives;
  std::optional<Operations> operations;
};

Count counted(const RunSpec& run, int ranks, const std::string& data_dir, bool operations) {
  Alone alone(run, ranks, at::kCPU, data_dir);
  alone.stepper.step(1);  // what only a first step does is not the price of a step
  Count count{collectives_of(alone.stepper, alone.world.ledger(), steps_counted(run)), {}};
  if (operations) count.operations = operations_of_a_step(alone.stepper, at::kCPU);
  return count;
}

ImageSizes sizes_of(const Json& task) {
  return facts_of<TaskFacts>(task).image_sizes(task);
}

// The same task on training images of this size, which one of its options sets; nothing where none does.
std::optional<Json> task_of_size(const Json& task, const ImageSizes::value_type& size) {
  for (const Parameter& option : find_registered(TaskFacts::kFamily, task.at("name"))->parameters()) {
    if (!option.list || option.length != size.size() || option.kind != Parameter::Kind::integer) continue;
    Json other = task;
    other[option.name] = size;
    if (const ImageSizes sizes = sizes_of(other); !sizes.empty() && sizes.front() == size) return other;
  }
  return std::nullopt;
}

double area(const ImageSizes::value_type& size) {
  return static_cast<double>(size[0] * size[1]);
}

int64_t channels_of_a_site(const RunSpec& run) {
  const Channels channels = facts_of<ModelFacts>(run.model).norm_channels(run.model);
  return channels.empty() ? kUsualChannels : channels.front();
}

// The count of other images: what grows with them grows with their area.
Count in_proportion(const Count& small, const Count& large, double times) {
  const auto grown = [times](double from, double to) { return from + times * (to - from); };
  TORCH_INTERNAL_ASSERT(small.collectives.size() == large.collectives.size());
  Count count = small;
  for (size_t i = 0; i < count.collectives.size(); ++i) {
    int64_t& bytes = count.collectives[i].bytes;
    bytes = std::llround(grown(static_cast<double>(bytes), static_cast<double>(large.collectives[i].bytes)));
  }
  if (small.operations && large.operations) {
    const Operations &from = *small.operations, &to = *large.operations;
    count.operations = {.flops = grown(from.flops, to.flops),
                        .matrix_bytes = grown(from.matrix_bytes, to.matrix_bytes),
                        .other_bytes = grown(from.other_bytes, to.other_bytes)};
  }
  return count;
}

// The network halves images at most so often, to one row of two: one value would be refused.
constexpr int64_t kMostHalved = 32;

Count counted_on_small_images(const RunSpec& run, int ranks, const std::string& data_dir, bool operations) {
  const ImageSizes sizes = sizes_of(run.task);
  const int64_t side = std::lcm(kMostHalved, facts_of<ModelFacts>(run.model).image_multiple(run.model));
  const ImageSizes::value_type small{side, 2 * side}, large{2 * side, 2 * side};
  const auto of_a_site = [&](int64_t pixels) {
    return exchanges_of_a_site(run.strategy, channels_of_a_site(run), pixels, ranks);
  };
  const bool grows = operations || of_a_site(2) != of_a_site(4);
  const auto smaller = task_of_size(run.task, small), larger = task_of_size(run.task, large);
  const bool of_any_size =
      facts_of<ModelFacts>(run.model).folder(run.model).empty();  // none that was exported
  if (!of_any_size || !smaller || !larger || area(sizes.front()) <= area(large) ||
      (grows && (sizes.front()[0] % side != 0 || sizes.front()[1] % side != 0)))
    return counted(run, ranks, data_dir, operations);
  const auto count = [&](const Json& task) {
    RunSpec other = run;
    other.task = task;
    other.evaluation = {};
    return counted(other, ranks, data_dir, operations);
  };
  if (!grows) return count(*smaller);
  return in_proportion(count(*smaller), count(*larger),
                       (area(sizes.front()) - area(small)) / (area(large) - area(small)));
}

}  // namespace

void prepare_to_measure(int threads) {
  account_cpu_memory();
  at::set_num_threads(threads);
}

RunSpec without_end(RunSpec run) {
  run.steps = kManySteps;
  run.epochs.reset();
  run.eval_every = 0;
  run.checkpoint_every = 0;
  run.log_every = kManySteps;
  run.populations = {"saved"};
  return run;
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
    chosen.push_back(without_end(std::move(run)));
  }
  return chosen;
}

std::string kind_of_exchanges(const RunSpec& run, int ranks) {
  return exchanges_of_a_site(run.strategy, channels_of_a_site(run), 2, ranks);
}

Json counted_step(const RunSpec& run, int ranks, const std::string& data_dir, bool operations) {
  try {
    const Count count = counted_on_small_images(run, ranks, data_dir, operations);
    Json step = described(run, ranks);
    step["operations"] = json_of(count.operations);
    step["exchanges"] = exchanges_of(count.collectives, steps_counted(run));
    return step;
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::refused) throw;
    return refused(run, ranks, error.what());
  }
}

Json own_step(const RunSpec& run, int ranks, Device device, const std::string& data_dir, double seconds) {
  const at::Device where(device == Device::cuda ? at::kCUDA : at::kCPU);
  allow_tf32(run.tf32);
  try {
    const double until = seconds_now() + seconds;
    Json step;
    const auto alone = set_up(run, ranks, where, data_dir, step);
    const double once = alone->stepper.times(1).front();
    step["own_s"] = spread_of(alone->times(repeats_within(until - seconds_now(), once, 5, kMostOwnSamples)));
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
