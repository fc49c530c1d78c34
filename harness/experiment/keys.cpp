#include "harness/experiment/spec.hpp"

#include "harness/components/registry.hpp"
#include "harness/experiment/run.hpp"

namespace bnlab {
namespace {

constexpr double kMostSteps = 1e9;
constexpr double kLargestSeed = 9007199254740992.0;  // 2^53: every JSON reader holds it exactly

constexpr double kLongestWait = 1e8;  // seconds, three years

constexpr const char* kSorted = "sorted:";

struct PlacementKeys {
  std::optional<int> ranks;
  std::optional<Device> device;
  std::optional<Exchange> exchange;
  std::optional<int> threads;

  void describe(OptionVisitor& option) {
    option("ranks", ranks, "processes; must divide the towers").at_least(1).at_most(4096);
    option("device", device, "where the ranks compute");
    option("exchange", exchange, "how ranks on CPUs exchange statistics and gradients");
    option("threads", threads, "of each rank; null: its share of the cores").at_least(1).at_most(4096);
  }
};

}  // namespace

void InitFrom::describe(OptionVisitor& option) {
  option("file", file,
         "weights file, relative to the working directory; {seed} stands for the run's seed, and where one "
         "file alone fits, * for any part of a name")
      .not_empty()
      .needed();
  option("part", part, "features: all but the head; what is not loaded keeps its own start");
}

void LossScaling::describe(OptionVisitor& option) {
  option("start", start, "the scale of the first step").above(0).at_most(1e30);
  option("growth", growth, "its factor after `interval` steps in a row with finite gradients").at_least(1);
  option("backoff", backoff, "its factor after a step without, which is skipped").above(0).below(1);
  option("interval", interval, "steps in a row before it grows").at_least(1).at_most(kMostSteps);
}

void Evaluation::describe(OptionVisitor& option) {
  option("crop", crop,
         "height and width of the crops that cover a test image; null: the whole image in one piece")
      .at_least(8)
      .at_most(16384);
  option("stride", stride, "from one crop to the next, in crops").above(0).at_most(1);
  option("flip", flip, "whether the answers for the mirrored image are averaged in");
  option("scales", scales, "of the image; the answers are averaged").at_least(0.1).at_most(10).not_empty();
}

void Timing::describe(OptionVisitor& option) {
  option("against", against,
         "dotted keys and values of the run that has its turns beside this one, otherwise the same")
      .needed();
  option("together", together,
         "dotted keys: all runs of the matrix that differ in these alone have their turns in one world");
  option("with", with, "set by `together`: keys and values of the other runs in this one's world, or null");
  option("seconds", seconds, "that each is timed, at least").above(0).at_most(kLongestWait);
  option("steps", steps, "that each is timed, at least").at_least(1).at_most(kMostSteps);
  option("turn_s", turn_s, "length of a turn in seconds, about").above(0).at_most(kLongestWait);
  option(
      "error", error,
      "two standard errors of the logarithm of the ratio of their times, at most; 0.005 are half a per cent")
      .above(0);
  option("limit_s", limit_s, "after which the timing ends, whatever is missing")
      .above(0)
      .at_most(kLongestWait);
}

void StopEarly::describe(OptionVisitor& option) {
  option("every", every, "steps over which the training loss is averaged")
      .at_least(1)
      .at_most(kMostSteps)
      .needed();
  option("diverging_above", diverging_above,
         "a run diverges once its loss is more than so many times that of the first steps")
      .at_least(1)
      .at_most(1e6);
  option("chance_after", chance_after, "steps after which the loss must have fallen; null: that is not asked")
      .at_least(1)
      .at_most(kMostSteps);
  option("chance_above", chance_above,
         "a run is at chance while its loss is more than so many times that of the first steps")
      .above(0)
      .at_most(1);
}

void Select::describe(OptionVisitor& option) {
  option("validation_share", validation_share,
         "of the training set, held out for validation and not trained on")
      .above(0)
      .at_most(0.5);
  option("population", population, "statistics of the evaluation that decides; ema: the averaged weights")
      .not_empty();
}

void RunSpec::describe(OptionVisitor& option) {
  option.component("task", task, "task", "data, loss and metric").needed();
  option.component("model", model, "model", "the network").needed();
  option.component("strategy", strategy, "strategy", "what stands at the norm sites").needed();
  int64_t towers = 1;          // make_run fills in what these two mean together: samples_per_tower
  std::vector<int64_t> batch;  // see towers
  option("towers", towers, "units of batch-norm statistics").at_least(1).at_most(kMostTowers);
  option("batch_per_tower", batch,
         "samples per tower and step; a list names each tower's, 0 for an empty tower")
      .or_single()
      .at_least(0)
      .at_most(1e6)
      .needed();
  option("accumulate", accumulate,
         "forward and backward passes per step, each with so many parts of every tower's samples; gradients "
         "are exchanged once")
      .at_least(1)
      .at_most(1e6);
  option("statistics_per", statistics_per,
         "running statistics are written in every pass of a step, or once in its last");
  option(
      "recompute", recompute,
      "blocks: activations inside the model's blocks are dropped and computed again in backward, to the same "
      "bits; naive: the second forward passes exchange and remember once more");
  option.component("optimizer", optimizer, "optimizer", "how weights change");
  std::optional<int64_t> length;
  option("steps", length, "training steps (this or epochs)").at_least(1).at_most(kMostSteps);
  option("epochs", epochs, "training length in passes over the training set (this or steps)")
      .above(0)
      .at_most(1e6);
  option("seed", seed, "of weights, data, order and augmentation").at_least(0).at_most(kLargestSeed);
  option("precision", precision, "of activations; bfloat16 and float16 are autocast over float32 weights");
  option("loss_scaling", loss_scaling,
         "of float16 runs: what the loss is multiplied with before the backward pass");
  option("tf32", tf32, "whether GPUs may round the factors of float32 convolutions and products to TF32");
  option(
      "deterministic", deterministic,
      "whether GPUs take only algorithms that repeat to the bit, untimed; LibTorch warns of what has none");
  option("cuda_graph", cuda_graph,
         "whether GPUs replay a training step as CUDA graphs, where steps are alike but for the batch");
  option("memory_format", memory_format, "of activations");
  option("loss_mean", loss_mean,
         "mean of the loss over the valid labels of the global batch, or of each tower and then over towers");
  option("eval_every", eval_every, "steps between evaluations; 0: only after the last step")
      .at_least(0)
      .at_most(kMostSteps);
  option("log_every", log_every, "steps between loss reports").at_least(1).at_most(kMostSteps);
  std::optional<int64_t> between_checkpoints;
  option("checkpoint_every", between_checkpoints,
         "steps between checkpoints, from which a run that was cut short goes on; null: none")
      .at_least(1)
      .at_most(kMostSteps);
  option(
      "populations", populations,
      "statistics to evaluate with: saved, tower:K, mean, pooled, precise, batch, mix:A, own_tower, and with "
      "weight_ema ema_precise, ema_live")
      .not_empty();
  option("precise_batches", precise_batches, "training batches over which population precise is recomputed")
      .at_least(1)
      .at_most(kMostSteps);
  option("evaluation", evaluation, "how test images are answered");
  std::string shards = "iid";
  option("shards", shards,
         "iid, or sorted:KEY: the training set sorted by a key of the task, a contiguous share per tower")
      .not_empty();
  option("weight_ema", weight_ema, "decay of a moving average of the weights, evaluated beside them")
      .above(0)
      .below(1);
  option("gradient_route", gradient_route,
         "how the ranks' gradients meet: bucketed during backward, averaged on rank 0 and broadcast, or in "
         "host memory");
  std::optional<int64_t> every;
  option("average_weights_every", every,
         "steps between averages of weights, momentum and saved pairs, in place of averaging gradients; one "
         "tower per rank")
      .at_least(1)
      .at_most(kMostSteps);
  option("init_from", init_from, "weights to start from");
  option(
      "select", select,
      "leave the weights whose evaluation on a validation part of the training set was best; null: the last");
  option("stop_early", stop_early, "when a run that diverges or stays at chance ends early; null: never");
  option("warmup_steps", warmup_steps, "first steps that the throughput leaves out")
      .at_least(0)
      .at_most(kMostSteps);
  option("timing", timing, "times taken in turns with another run; null: those of the training steps");
  option("data_workers", data_workers,
         "threads of each rank that make training batches ahead of the steps; 0: the step makes its own; "
         "null: 1 on GPUs, 0 on CPUs")
      .at_least(0)
      .at_most(64);
  option("timeout_s", timeout_s, "wall time of a run in seconds; 0: no limit")
      .at_least(0)
      .at_most(kLongestWait);
  option("collective_timeout_s", collective_timeout_s, "longest wait for another rank, in seconds")
      .at_least(0.001)
      .at_most(kLongestWait);
  PlacementKeys placement;
  option("placement", placement, "where the runs happen; what is null is left to the command line");

  steps = length.value_or(0);
  shard_key = sorted_by(shards);
  average_weights_every = every.value_or(0);
  checkpoint_every = between_checkpoints.value_or(0);
  ranks = placement.ranks;
  device = placement.device;
  exchange = placement.exchange;
  threads = placement.threads;
}

void Contrast::describe(OptionVisitor& option) {
  option("metric", metric, "the number compared").not_empty().needed();
  option("at", at, "dotted keys and values: the cells in which it is compared");
  option("strategy", strategy, "name or label of the strategy expected above");
  option("above", above, "name or label of the strategy expected below");
  option("runs", runs,
         "in place of two strategies: dotted keys and values of the runs expected above; pairs differ in the "
         "keys of both sides alone");
  option("above_runs", above_runs, "dotted keys and values of the runs expected below");
  option("population", population, "statistics of the evaluation; ema: the averaged weights").not_empty();
  option("above_population", above_population,
         "likewise of the side expected below; its strategy may then be the same one; null: the same")
      .not_empty();
  option("equivalence_margin", equivalence_margin, "differences up to this count as equal").above(0);
}

void Published::describe(OptionVisitor& option) {
  option("metric", metric, "the number published; relative_images_per_s: images/s over the baseline's")
      .not_empty()
      .needed();
  option("from", from, "the smallest value published").needed();
  option("to", to, "the largest value published").needed();
  option("source", source, "who published it").not_empty().needed();
  option("at", at, "dotted keys and values: the runs that are compared with it");
  option("population", population, "statistics of the evaluation; ema: the averaged weights").not_empty();
}

void Tune::describe(OptionVisitor& option) {
  option("grid", grid, "dotted keys, and the values to choose from").needed();
  option("seeds", seeds, "of the runs that tune; none of the matrix's")
      .at_least(0)
      .at_most(kLargestSeed)
      .not_empty()
      .needed();
  option("metric", metric, "the highest mean of it wins").not_empty().needed();
  option("population", population, "statistics of the evaluation; ema: the averaged weights").not_empty();
  option("per", per, "dotted keys: runs that differ there choose apart").not_empty();
  option("set", set, "dotted keys that these runs have otherwise: their images, a smaller matrix");
  option(
      "lengths", lengths,
      "steps, each twice the one before: the shortest becomes the matrix's from which doubling gains every "
      "group less than gain_below")
      .at_least(1);
  option("gain_below", gain_below, "what doubling the chosen length may still gain in the metric").above(0);
  option(
      "halvings", halvings,
      "successive halving: each of so many times only the better half of a group's settings is trained twice "
      "as long; without lengths, the runs begin at steps / 2^halvings")
      .at_least(0)
      .at_most(16);
}

void Experiment::describe(OptionVisitor& option) {
  std::optional<std::string> extends;
  Json matrix;
  std::vector<Json> exclude;
  option("question", question, "what the experiment asks");
  option("claim", claim, "the expected answer, written down before anything runs");
  option("source", source, "paper or discussion behind the question");
  option("protocol", protocol, "how the runs are made and compared, where it is not plain from the keys");
  option("extends", extends, "a base spec, relative to this file").not_empty();
  option("matrix", matrix, "axes: a dotted key, or several joined by commas, and its values");
  option("exclude", exclude, "cells to leave out: dotted keys and the values that they match");
  option("contrasts", contrasts, "the comparisons declared beforehand");
  option("tune", tune, "settings that each strategy chooses beforehand, in runs of their own");
  option("published", published, "numbers that others have published, to be compared with");
}

const std::vector<Parameter>& run_parameters() {
  static const std::vector<Parameter> all = declared<RunSpec>();
  return all;
}

const std::vector<Parameter>& experiment_parameters() {
  static const std::vector<Parameter> all = declared<Experiment>();
  return all;
}

const std::vector<Parameter>& spec_parameters() {
  static const std::vector<Parameter> all = [] {
    std::vector<Parameter> both = experiment_parameters();
    both.insert(both.end(), run_parameters().begin(), run_parameters().end());
    return both;
  }();
  return all;
}

std::string sorted_by(const std::string& shards) {
  const std::string prefix = kSorted;
  return shards.rfind(prefix, 0) == 0 ? shards.substr(prefix.size()) : "";
}

bool changes_result(const std::string& key) {
  return key != "placement" && key != "log_every" && key != "checkpoint_every" && key != "data_workers" &&
         key != "cuda_graph" && key != "timeout_s" && key != "collective_timeout_s";
}

}  // namespace bnlab
