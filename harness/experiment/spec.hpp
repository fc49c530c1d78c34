// Specs: what is asked. A spec file is one JSON object (experiments/spec.md lists the keys); its
// matrix expands to runs. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/components/registry.hpp"
#include "harness/pass.hpp"
#include "harness/placement.hpp"
#include "harness/population.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

BNLAB_CHOICE(Precision, float32, float64, bfloat16, float16)
BNLAB_CHOICE(MemoryFormat, channels_last, contiguous)
BNLAB_CHOICE(LossMean, batch, tower)
// When running statistics are written, where a step has several passes (accumulate).
BNLAB_CHOICE(StatisticsPer, micro_batch, step)
// How the gradients of the ranks meet: by World::gradient_sync(), which is c10d's Reducer except in shared
// memory; or they are averaged on rank 0 and broadcast; or they are averaged in host memory.
BNLAB_CHOICE(GradientRoute, reducer, rank0, host)
// What of a network starts from a weights file: all of it, all but its head, or its backbone alone.
BNLAB_CHOICE(LoadedPart, all, features, backbone)

// A weights file to start from.
struct InitFrom {
  std::string file;                   // {seed} stands for the run's seed, a * for the file that there is
  LoadedPart part = LoadedPart::all;  // the others keep their own initialisation

  void describe(OptionVisitor& option);
};

// How the times of a run are taken: in short turns with other runs, in one world of ranks, so that whatever
// slows the machine down slows all of them (training/timing/turns.hpp). timing.hpp says which runs these are.
struct Timing {
  Json against = {};  // dotted keys -> values, which the other run has otherwise: {"strategy": "per_tower"}
  std::vector<std::string> together;  // dotted keys: runs that differ in these alone have one world
  // Comes of `together`: the other runs in this one's world, like `against`; nothing where this run is in
  // the world of another one.
  std::optional<std::vector<Json>> with = std::vector<Json>();
  double seconds = 10;   // each run is timed for at least so long
  int64_t steps = 500;   // for at least so many steps
  double turn_s = 0.5;   // how long one has its turn, about
  double error = 0.005;  // two standard errors of the logarithm of the ratio of their times, at most
  double limit_s = 120;  // then the timing ends, whatever is missing

  void describe(OptionVisitor& option);
};

// Of float16 runs: what the loss is multiplied with before the backward pass, so that small gradients are no
// zeros, and how it changes (training/loss_scale.hpp).
struct LossScaling {
  double start = 65536;
  double growth = 2;     // after `interval` steps in a row whose gradients are finite
  double backoff = 0.5;  // after a step whose gradients are not, which changes no weight
  int64_t interval = 2000;

  void describe(OptionVisitor& option);
};

// How test images are answered (training/predictions.hpp).
struct Evaluation {
  std::optional<std::array<int64_t, 2>> crop = {};  // height, width; nothing: the whole image in one piece
  double stride = 2.0 / 3;                          // from one crop to the next, in crops
  bool flip = false;                                // also mirrored left to right
  std::vector<double> scales = {1};

  void describe(OptionVisitor& option);
  // A side of an image at a scale.
  static int64_t scaled(int64_t size, double scale);
  // The sizes of all images that the network is given, where the task has images of these sizes: first those
  // of training, then those of the test.
  ImageSizes sizes_seen(const ImageSizes& of_task) const;
  bool in_one_piece() const { return !crop && !flip && scales == std::vector<double>{1}; }
};

// When a run is given up because its training fails (training/early_stop.hpp).
struct StopEarly {
  int64_t every = 1;           // steps over which a loss is averaged
  double diverging_above = 2;  // times the mean loss of the first so many steps
  std::optional<int64_t> chance_after;
  std::optional<double> chance_above;  // the same, once chance_after steps are done

  void describe(OptionVisitor& option);
};

// The weights that a run leaves: those that were best on a part of the training set which it does not train
// on.
struct Select {
  double validation_share = 0.1;
  std::string population = "saved";

  void describe(OptionVisitor& option);
};

// One run of a matrix, complete: every key has its value.
struct RunSpec {
  Json resolved;   // the whole run spec with defaults filled in, as recorded (without placement)
  std::string id;  // "sync-8x2-seed0-1f3a9c2b4d5e": readable slug + hash of the canonical `resolved`

  Json task, model, strategy, optimizer = "sgd";  // resolved component objects ({"name": ..., parameters})
  std::vector<int64_t> samples_per_tower;         // [towers], of a step
  int64_t accumulate = 1;                         // passes per step, of a part of each tower's samples
  StatisticsPer statistics_per = StatisticsPer::micro_batch;
  Recompute recompute = Recompute::none;
  int64_t steps = 0;  // from "steps", or "epochs" once the task's size is known
  std::optional<double> epochs;
  uint64_t seed = 0;
  Precision precision = Precision::float32;
  LossScaling loss_scaling;    // for Precision::float16
  bool tf32 = false;           // whether float32 factors may be rounded to TF32 on GPUs
  bool deterministic = false;  // whether GPUs take only algorithms that repeat to the bit
  bool cuda_graph = true;      // whether GPUs replay the training steps that are alike
  MemoryFormat memory_format = MemoryFormat::channels_last;
  LossMean loss_mean = LossMean::batch;
  int64_t eval_every = 0;  // steps between evaluations; 0: only after the last step
  int64_t log_every = 10;  // steps between loss reports
  int64_t checkpoint_every =
      0;  // steps between checkpoints, from which a run that was cut short goes on; 0: none
  std::vector<std::string> populations = {
      "saved"};                  // "saved", "tower:K", "mean", "pooled", "precise", "batch"
  int64_t precise_batches = 20;  // training batches of population "precise"
  Evaluation evaluation;
  std::string shard_key;             // training set sorted by this key of the task; empty: iid
  std::optional<double> weight_ema;  // decay of the moving average of the weights
  GradientRoute gradient_route = GradientRoute::reducer;
  int64_t average_weights_every =
      0;  // steps between averages of the ranks' weights; 0: gradients are averaged
  std::optional<InitFrom> init_from;
  std::optional<StopEarly> stop_early;
  std::optional<Select> select;
  int64_t warmup_steps = 5;      // steps left out of the throughput
  std::optional<Timing> timing;  // nothing: the times are those of the training
  std::optional<int64_t>
      data_workers;      // threads of each rank that make training batches ahead; nothing: by the device
  double timeout_s = 0;  // wall time of the run; 0: none
  double collective_timeout_s = 60;

  // From the spec's "placement", else unset: the command line decides.
  std::optional<int> ranks;
  std::optional<Device> device;
  std::optional<Exchange> exchange;  // between ranks on CPUs
  std::optional<int> threads;        // per rank

  void describe(OptionVisitor& option);  // every key of a run: keys.cpp
  int64_t towers() const { return static_cast<int64_t>(samples_per_tower.size()); }
  std::vector<int64_t> samples_per_pass() const;  // each tower's micro-batch
  std::vector<std::string> evaluated() const;     // populations, and kAveragedWeights with weight_ema
  Json placement() const;       // what the spec says of it: ranks, device, exchange, threads
  Json with_placement() const;  // `resolved` and beside it "placement": what rules are matched against
  Json value_at(const std::string& key) const;  // at a dotted key of with_placement(); null: none
};

// A primary contrast, declared before anything runs: one side is expected above the other in `metric` at the
// cells that match `at`. The sides are two strategies, or runs that differ in other keys.
struct Contrast {
  Json as_written;
  std::string metric;
  Json at;                      // dotted keys of the run spec -> value
  std::string strategy, above;  // strategy labels (see label()); empty where rules tell the sides apart:
  std::string declared_strategy, declared_above;  // the labels before tuning chose options of these
  Json runs, above_runs;                          // dotted keys -> value, as `at`; empty where strategies do
  std::string population = "saved";
  std::optional<std::string> above_population;  // on the side expected below; nothing: the same
  std::optional<double> equivalence_margin;

  bool of_strategies() const { return runs.empty() && above_runs.empty(); }
  const std::string& population_above() const { return above_population ? *above_population : population; }
  // What the runs of a side match: `at`, and where it has one the side's own rule.
  Json rule(bool is_above) const;
  // The dotted keys that the rules of the sides name, in which alone the runs of a pair differ.
  std::vector<std::string> compared_keys() const;

  void describe(OptionVisitor& option);
};

// The images/s over those of the baseline, a metric of published numbers alone.
inline constexpr const char* kRelativeImagesPerS = "relative_images_per_s";
// The natural logarithm of a run's images/s over those of the run beside which it was timed: 0.03 are 3 %.
inline constexpr const char* kLogImagesPerS = "log_images_per_s";

// What others have published for such runs: `metric` lies from `from` to `to`.
struct Published {
  std::string metric;
  double from = 0, to = 0;
  std::string source;
  Json at;  // as in a contrast
  std::string population = "saved";

  void describe(OptionVisitor& option);
};

// What is chosen for each strategy before the matrix is run, by runs of their own (tuning.hpp).
struct Tune {
  Json grid;                                    // dotted keys -> lists of values
  std::vector<uint64_t> seeds;                  // none of the matrix's
  std::string metric;                           // the highest mean of it wins
  std::string population = "saved";             // the statistics of the evaluation
  std::vector<std::string> per = {"strategy"};  // dotted keys: runs that differ there choose apart
  Json set;                      // keys that these runs have otherwise: their images, a smaller matrix
  std::vector<int64_t> lengths;  // steps, each twice the one before; empty: the length is not chosen
  double gain_below = 0.01;      // what doubling the chosen length may still gain in the metric
  int halvings = 0;  // how often the worse half of a group's settings is left out before the longest runs

  void describe(OptionVisitor& option);
};

struct Tuning;

struct Experiment {
  void describe(OptionVisitor& option);  // the keys around the runs: keys.cpp

  std::string name;  // the file's stem, unless another one was given
  std::string file;
  Json asked;  // the spec in one piece: with what it extends and what was overridden, but no defaults
  std::string question, claim, source, protocol;
  std::vector<std::string> axes;  // the matrix keys, in the order of the file
  std::vector<RunSpec> runs;      // seeds outermost, strategies innermost
  struct Excluded {
    std::string id;
    size_t rule;
  };
  std::vector<Excluded> excluded;  // cells that a rule of `exclude` removed
  std::vector<Contrast> contrasts;
  std::vector<Published> published;
  std::optional<Tune> tune;
  std::shared_ptr<const Tuning> tuning;  // with `tune`, else null
};

// Reads, checks and expands a spec file. `overrides` are texts KEY=VALUE (document.hpp). Throws Error (spec)
// with all mistakes at once, one per line: FILE: KEY.PATH: what was expected, what came, the nearest known
// name.
Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides = {},
                           const std::string& name = "");

// What is wrong with the stem of a file's name as the name of an experiment, or "".
std::string name_problem(const std::string& stem);

// The run that a `resolved` object (of a record, or handed to a rank) describes. Throws Error (spec).
RunSpec read_resolved(const Json& resolved);

// "sync-8x2-seed0-1f3a9c2b4d5e": see identity.cpp.
std::string run_id(const Json& run);

// The short name of a component object: its name, and what differs from the defaults in brackets,
// "sync", "sync(gradient=stopped)", of a model "unet(base=16)".
std::string label(const Json& component, const std::string& family = "strategy");

// The family of the components that stand at a dotted key of a run: "backbone" at "model.backbone"; "" where
// it holds something else.
std::string family_at(const std::string& key);

// Whether a run fits a rule of `exclude`, of a contrast's `at` or of `--only`: whether it has the values that
// `wanted` names at dotted keys, {"towers": 8, "strategy.name": "sync"}. A component is matched by its name,
// its label or some of its keys ("strategy": "sync(gradient=stopped)", "model": {"base": 8}). The Json form
// takes RunSpec::with_placement().
bool matches(const Json& wanted, const Json& run);
bool matches(const Json& wanted, const RunSpec& run);

// The keys of a spec, declared once (keys.cpp): what a run is, in the order of a resolved run spec, and
// "placement", all of which may be axes; what surrounds the runs; and both.
const std::vector<Parameter>& run_parameters();
const std::vector<Parameter>& experiment_parameters();
const std::vector<Parameter>& spec_parameters();

// The KEY of the shards "sorted:KEY"; empty for "iid" and for what is neither.
std::string sorted_by(const std::string& shards);

// Whether a key belongs to the run id. Those left out say where and how a run happens, how long it may take
// and how often it talks, and change no result but by rounding.
bool changes_result(const std::string& key);

// The JSON Schema of specs, for editors: made from the declared keys and from the options of the
// components that are registered in some families. A spec that this refuses, load_experiment refuses too.
// Not the other way round: what keys must agree on, and which ones a spec or its base must give, no schema
// says.
Json spec_schema(const std::vector<std::string>& families);

}  // namespace bnlab
