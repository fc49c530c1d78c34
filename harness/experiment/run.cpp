#include "harness/experiment/run.hpp"

#include <algorithm>
#include <map>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/keys.hpp"
#include "harness/experiment/report.hpp"
#include "harness/population.hpp"

namespace bnlab {
namespace {

void check_length(const Json& run, Problems& problems) {
  const bool steps = !run["steps"].is_null();
  const bool epochs = !run["epochs"].is_null();
  if (steps == epochs) {
    problems.add("steps", std::string("expected exactly one of \"steps\" and \"epochs\", got ") +
                              (steps ? "both" : "neither"));
  }
}

void check_batch(const Json& run, Problems& problems) {
  if (!run.contains("batch_per_tower")) {
    return;
  }
  const Json& batch = run["batch_per_tower"];
  const Json& towers = run["towers"];
  if (batch.is_array() && towers.is_number_integer() && towers != batch.size()) {
    problems.add("batch_per_tower", "expected " + towers.dump() + " entries, one per tower, got " +
                                        std::to_string(batch.size()));
  }
  const bool nothing = batch.is_array()
                           ? std::all_of(batch.begin(), batch.end(), [](const Json& b) { return b == 0; })
                           : batch == 0;
  if (nothing) {
    problems.add("batch_per_tower", "expected at least one sample in some tower, got " + shown(batch));
  }
}

void check_placement(const Json& run, Problems& problems) {
  const Json* ranks = find(run, "placement.ranks");
  const Json& towers = run["towers"];
  if (ranks == nullptr || !ranks->is_number_integer() || !towers.is_number_integer() || *ranks < 1) {
    return;
  }
  if (towers.get<int64_t>() % ranks->get<int64_t>() != 0) {
    problems.add("placement.ranks",
                 "expected a divisor of the " + towers.dump() + " towers, got " + ranks->dump());
  }
}

void check_optimizer(const Json& run, Problems& problems) {
  const Json* nesterov = find(run, "optimizer.nesterov");
  const Json* momentum = find(run, "optimizer.momentum");
  if (nesterov != nullptr && momentum != nullptr && *nesterov == true && *momentum == 0) {
    problems.add("optimizer.nesterov", "expected false where momentum is 0, got true");
  }
}

void check_populations(const Json& run, Problems& problems) {
  const Json& populations = run["populations"];
  const Json& towers = run["towers"];
  for (size_t i = 0; populations.is_array() && towers.is_number_integer() && i < populations.size(); ++i) {
    const std::string problem =
        populations[i].is_string() ? population_problem(populations[i], towers.get<int64_t>()) : "";
    if (!problem.empty()) {
      problems.add("populations[" + std::to_string(i) + "]", problem);
    }
  }
}

constexpr const char* kSorted = "sorted:";

// The KEY of "sorted:KEY"; empty for "iid" and for what is neither.
std::string shard_key(const std::string& shards) {
  const std::string prefix = kSorted;
  return shards.rfind(prefix, 0) == 0 ? shards.substr(prefix.size()) : "";
}

void check_shards(const Json& run, Problems& problems) {
  const Json& shards = run["shards"];
  if (shards.is_string() && shards != "" && shards != "iid" && shard_key(shards).empty()) {
    problems.add("shards",
                 "expected iid or sorted:KEY, where KEY is one of the task's, got " + shown(shards));
  }
}

// Averaging weights takes the place of averaging gradients, and knows ranks, not towers.
void check_weight_averaging(const Json& run, Problems& problems) {
  const Json& every = run["average_weights_every"];
  if (!every.is_number_integer() || every < 1) {
    return;
  }
  const std::string beside = " beside average_weights_every, got ";
  if (run["gradient_route"] != "reducer") {
    problems.add("gradient_route", "expected \"reducer\"" + beside + shown(run["gradient_route"]));
  }
  if (!run["weight_ema"].is_null()) {
    problems.add("weight_ema", "expected null" + beside + shown(run["weight_ema"]));
  }
  const Json& eval_every = run["eval_every"];
  if (eval_every.is_number_integer() && eval_every > 0 &&
      eval_every.get<int64_t>() % every.get<int64_t>() != 0) {
    problems.add("average_weights_every",
                 "expected a divisor of eval_every, " + eval_every.dump() + ", got " + every.dump());
  }
  const Json* ranks = find(run, "placement.ranks");
  if (ranks != nullptr && ranks->is_number_integer() && *ranks != run["towers"]) {
    problems.add("average_weights_every", "expected one tower per rank, got placement.ranks " +
                                              ranks->dump() + " for " + shown(run["towers"]) + " towers");
  }
}

std::vector<int64_t> samples_per_tower(const Json& run) {
  const Json& batch = run["batch_per_tower"];
  if (batch.is_array()) {
    return batch.get<std::vector<int64_t>>();
  }
  return std::vector<int64_t>(run["towers"].get<size_t>(), batch.get<int64_t>());
}

template <class Choice>
Choice chosen(const Json& name, const std::map<std::string, Choice>& choices) {
  return choices.at(name.get<std::string>());
}

template <class Number>
std::optional<Number> or_nothing(const Json* value) {
  return value == nullptr || value->is_null() ? std::nullopt : std::optional(value->get<Number>());
}

}  // namespace

void check_agreement(const Json& run, Problems& problems) {
  check_length(run, problems);
  check_batch(run, problems);
  check_placement(run, problems);
  check_optimizer(run, problems);
  check_populations(run, problems);
  check_shards(run, problems);
  check_weight_averaging(run, problems);
}

Json normalised(Json run) {
  if (run.contains("batch_per_tower")) {
    Json& batch = run["batch_per_tower"];
    if (batch.is_array() && !batch.empty() &&
        std::all_of(batch.begin(), batch.end(), [&](const Json& b) { return b == batch[0]; })) {
      batch = Json(batch[0]);
    }
  }
  return run;
}

RunSpec make_run(const Json& given) {
  const Json run = normalised(given);
  RunSpec spec;
  spec.resolved = run;
  spec.resolved.erase("placement");
  spec.id = run_id(run);
  spec.task = run["task"];
  spec.model = run["model"];
  spec.strategy = run["strategy"];
  spec.optimizer = run["optimizer"];
  spec.samples_per_tower = samples_per_tower(run);
  spec.steps = or_nothing<int64_t>(&run["steps"]).value_or(0);
  spec.epochs = or_nothing<double>(&run["epochs"]);
  spec.seed = run["seed"];
  spec.precision = chosen<Precision>(
      run["precision"],
      {{"float32", Precision::float32}, {"float64", Precision::float64}, {"bfloat16", Precision::bfloat16}});
  spec.memory_format = chosen<MemoryFormat>(
      run["memory_format"],
      {{"channels_last", MemoryFormat::channels_last}, {"contiguous", MemoryFormat::contiguous}});
  spec.loss_mean =
      chosen<LossMean>(run["loss_mean"], {{"batch", LossMean::batch}, {"tower", LossMean::tower}});
  spec.eval_every = run["eval_every"];
  spec.log_every = run["log_every"];
  spec.populations = run["populations"].get<std::vector<std::string>>();
  spec.precise_batches = run["precise_batches"];
  spec.shard_key = shard_key(run["shards"]);
  spec.weight_ema = or_nothing<double>(&run["weight_ema"]);
  spec.gradient_route = chosen<GradientRoute>(
      run["gradient_route"],
      {{"reducer", GradientRoute::reducer}, {"rank0", GradientRoute::rank0}, {"host", GradientRoute::host}});
  spec.average_weights_every = or_nothing<int64_t>(&run["average_weights_every"]).value_or(0);
  if (!run["init_from"].is_null()) {
    spec.init_from = InitFrom{run["init_from"]["file"], run["init_from"]["part"] == "features"};
  }
  spec.warmup_steps = run["warmup_steps"];
  spec.timeout_s = run["timeout_s"];
  spec.collective_timeout_s = run["collective_timeout_s"];
  spec.ranks = or_nothing<int>(find(run, "placement.ranks"));
  spec.device = or_nothing<std::string>(find(run, "placement.device"));
  return spec;
}

std::vector<std::string> RunSpec::evaluated() const {
  std::vector<std::string> all = populations;
  if (weight_ema) {
    all.push_back(kAveragedWeights);
  }
  return all;
}

RunSpec read_resolved(const Json& resolved) {
  Report report("resolved run spec");
  std::vector<Parameter> declared = run_parameters();
  declared.erase(std::remove_if(declared.begin(), declared.end(),
                                [](const Parameter& parameter) { return parameter.name == "placement"; }),
                 declared.end());
  Problems problems;
  const Json run = resolve(declared, resolved, "", problems);
  if (problems.empty()) {
    check_agreement(run, problems);
  }
  report.add(problems);
  report.throw_if_any();
  return make_run(run);
}

}  // namespace bnlab
