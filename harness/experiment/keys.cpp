#include "harness/experiment/keys.hpp"

#include <algorithm>

#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"

namespace bnlab {
namespace {

using P = Parameter;

constexpr double kMostSteps = 1e9;
constexpr double kLargestSeed = 9007199254740992.0;  // 2^53: every JSON reader holds it exactly

// The optimiser is part of the training loop; its entry has no maker, only parameters.
[[maybe_unused]] const bool optimizer_declared = [] {
  register_about(
      "optimizer",
      {"sgd",
       "stochastic gradient descent with momentum (PyTorch's form) and a learning-rate schedule",
       {P::number("lr", 0.1, "learning rate after the warm-up").above(0),
        P::number("momentum", 0.9, "weight of the previous update").at_least(0).at_most(1),
        P::boolean("nesterov", false, "Nesterov's form of momentum"),
        P::number("weight_decay", 0, "L2 penalty, added to the gradient").at_least(0),
        P::boolean("decay_norm_and_bias", false, "whether norm parameters and biases decay too"),
        P::integer("warmup_steps", 0, "steps over which the rate rises linearly to lr")
            .at_least(0)
            .at_most(kMostSteps),
        P::choice("schedule", "poly", {"poly", "constant"},
                  "poly: lr (1 - step/steps)^power; constant: lr throughout"),
        P::number("power", 0.9, "exponent of the poly schedule").above(0),
        P::number("norm_lr_multiplier", 1, "of the rate of parameters at norm sites").at_least(0),
        P::groups("groups",
                  {P::text("prefix", nullptr, "of the names of the group's parameters").at_least(1).needed(),
                   P::number("lr_multiplier", 1, "of the rate").at_least(0),
                   P::number("weight_decay", nullptr, "in place of the optimizer's; null: that one")
                       .at_least(0)
                       .or_null()},
                  "parameters by the beginning of their names; the longest prefix counts")}});
  return true;
}();

}  // namespace

const std::vector<Parameter>& run_parameters() {
  static const std::vector<Parameter> all = {
      P::component("task", "task", nullptr, "data, loss and metric").needed(),
      P::component("model", "model", nullptr, "the network").needed(),
      P::component("strategy", "strategy", nullptr, "what stands at the norm sites").needed(),
      P::integer("towers", 1, "units of batch-norm statistics").at_least(1).at_most(4096),
      P::integers("batch_per_tower", nullptr, 0,
                  "samples per tower and step; a list names each tower's, 0 for an empty tower")
          .at_least(0)
          .at_most(1e6)
          .or_one_integer()
          .needed(),
      P::component("optimizer", "optimizer", "sgd", "how weights change"),
      P::integer("steps", nullptr, "training steps (this or epochs)")
          .at_least(1)
          .at_most(kMostSteps)
          .or_null(),
      P::number("epochs", nullptr, "training length in passes over the training set (this or steps)")
          .above(0)
          .at_most(1e6)
          .or_null(),
      P::integer("seed", 0, "of weights, data, order and augmentation").at_least(0).at_most(kLargestSeed),
      P::choice("precision", "float32", {"float32", "float64", "bfloat16"},
                "of activations; bfloat16 is autocast over float32 weights"),
      P::choice("memory_format", "channels_last", {"channels_last", "contiguous"}, "of activations"),
      P::choice("loss_mean", "batch", {"batch", "tower"},
                "mean of the loss over the valid labels of the global batch, or of each tower and then "
                "over towers"),
      P::integer("eval_every", 0, "steps between evaluations; 0: only after the last step")
          .at_least(0)
          .at_most(kMostSteps),
      P::integer("log_every", 10, "steps between loss reports").at_least(1).at_most(kMostSteps),
      P::texts("populations", {"saved"}, {},
               "statistics to evaluate with: saved, tower:K, mean, pooled, precise, batch")
          .at_least(1),
      P::integer("precise_batches", 20, "training batches over which population precise is recomputed")
          .at_least(1)
          .at_most(kMostSteps),
      P::text(
          "shards", "iid",
          "iid, or sorted:KEY: the training set sorted by a key of the task, a contiguous share per tower")
          .at_least(1),
      P::number("weight_ema", nullptr, "decay of a moving average of the weights, evaluated beside them")
          .above(0)
          .below(1)
          .or_null(),
      P::choice("gradient_route", "reducer", {"reducer", "rank0", "host"},
                "how the ranks' gradients meet: bucketed during backward, averaged on rank 0 and broadcast, "
                "or in host "
                "memory"),
      P::integer("average_weights_every", nullptr,
                 "steps between averages of weights, momentum and saved pairs, in place of averaging "
                 "gradients; one tower per rank")
          .at_least(1)
          .at_most(kMostSteps)
          .or_null(),
      P::group(
          "init_from",
          {P::text("file", nullptr, "weights file, relative to the working directory").at_least(1).needed(),
           P::choice("part", "all", {"all", "features"}, "features: the head keeps its own start")},
          "weights to start from")
          .null_by_default(),
      P::integer("warmup_steps", 5, "first steps that the throughput leaves out")
          .at_least(0)
          .at_most(kMostSteps),
      P::number("timeout_s", 0, "wall time of a run in seconds; 0: no limit").at_least(0),
      P::number("collective_timeout_s", 60, "longest wait for another rank, in seconds").above(0),
      P::group("placement",
               {P::integer("ranks", nullptr, "processes; must divide the towers")
                    .at_least(1)
                    .at_most(4096)
                    .or_null(),
                P::choice("device", nullptr, {"cpu", "cuda"}, "where the ranks compute").or_null()},
               "where the runs happen; what is null is left to the command line"),
  };
  return all;
}

const std::vector<Parameter>& experiment_parameters() {
  static const std::vector<Parameter> all = {
      P::text("question", "", "what the experiment asks"),
      P::text("claim", "", "the expected answer, written down before anything runs"),
      P::text("source", "", "paper or discussion behind the question"),
      P::text("protocol", "", "how the runs are made and compared, where it is not plain from the keys"),
      P::text("extends", nullptr, "a base spec, relative to this file").at_least(1).or_null(),
      P::group("matrix", {}, "axes: a dotted key, or several joined by commas, and its values"),
      P::groups("exclude", {}, "cells to leave out: dotted keys and the values that they match"),
      P::groups(
          "contrasts",
          {P::text("metric", nullptr, "the number compared").at_least(1).needed(),
           P::group("at", {}, "dotted keys and values: the cells in which it is compared"),
           P::text("strategy", nullptr, "name or label of the strategy expected above").at_least(1).needed(),
           P::text("above", nullptr, "name or label of the strategy expected below").at_least(1).needed(),
           P::text("population", "saved", "statistics of the evaluation; ema: the averaged weights")
               .at_least(1),
           P::number("equivalence_margin", nullptr, "differences up to this count as equal")
               .above(0)
               .or_null()},
          "the comparisons declared beforehand"),
      P::group("remarks", {}, "strategy label: one sentence on it, shown beside its rows in reports"),
  };
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

bool changes_result(const std::string& key) {
  return key != "placement" && key != "log_every" && key != "timeout_s" && key != "collective_timeout_s";
}

}  // namespace bnlab
