#include "harness/experiment/run.hpp"

#include <algorithm>
#include <cmath>

#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/timing.hpp"
#include "harness/experiment/weights_file.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/population.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/task_facts.hpp"

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
  const auto samples = samples_per_tower(run);
  if (!samples) return;
  if (run["towers"] != samples->size()) {
    problems.add("batch_per_tower", "expected " + run["towers"].dump() + " entries, one per tower, got " +
                                        std::to_string(samples->size()));
  }
  if (std::ranges::all_of(*samples, [](int64_t count) { return count == 0; })) {
    problems.add("batch_per_tower",
                 "expected at least one sample in some tower, got " + shown(run["batch_per_tower"]));
  }
}

// The samples of the first tower that so many equal passes do not share out; null where they share out all.
const int64_t* uneven_tower(const std::vector<int64_t>& samples, int64_t passes) {
  const auto uneven = std::ranges::find_if(samples, [&](int64_t count) { return count % passes != 0; });
  return uneven == samples.end() ? nullptr : &*uneven;
}

void check_accumulation(const Json& run, Problems& problems) {
  const Json& accumulate = run["accumulate"];
  const auto samples = samples_per_tower(run);
  if (!samples || !accumulate.is_number_integer() || accumulate < 1) return;
  if (const int64_t* uneven = uneven_tower(*samples, accumulate)) {
    problems.add("accumulate", "expected a divisor of every tower's samples, got " + accumulate.dump() +
                                   " for a tower of " + std::to_string(*uneven) +
                                   "; change it or batch_per_tower");
  }
  if (accumulate > 1 && run["statistics_per"] == "step" && run["recompute"] == "naive") {
    problems.add("recompute",
                 "\"naive\" remembers in every forward pass, and statistics_per \"step\" once for all of a "
                 "step; change one of them");
  }
}

void check_placement(const Json& run, Problems& problems) {
  const Json* ranks = find(run, "placement.ranks");
  const Json& towers = run["towers"];
  if (ranks == nullptr || !ranks->is_number_integer() || !towers.is_number_integer() || *ranks < 1) return;
  if (towers.get<int64_t>() % ranks->get<int64_t>() != 0) {
    problems.add("placement.ranks",
                 "expected a divisor of the " + towers.dump() + " towers, got " + ranks->dump());
  }
}

// Whether no mistake of a key of the run, or of what is below it, was reported.
bool is_fine(const std::string& key, const Problems& reported) {
  return std::ranges::none_of(reported.found(), [&](const auto& it) { return top_level(it.first) == key; });
}

// "" where test samples can be told to which tower's shard they belong, else why not.
std::string own_tower_problem(const Json& run, const Problems& reported) {
  const std::string key = run["shards"].is_string() ? sorted_by(run["shards"]) : "";
  if (key.empty()) {
    return "own_tower: a test sample belongs to a tower only where the training set is sorted; expected "
           "shards sorted:KEY, got " +
           shown(run["shards"]);
  }
  if (!is_fine("task", reported)) return "";
  const std::vector<std::string> keys = facts_of<TaskFacts>(run["task"]).test_sort_keys(run["task"]);
  return std::ranges::count(keys, key) > 0
             ? ""
             : "own_tower: " + shown(key) + " is not known of a test sample of the task " +
                   shown(run["task"]["name"]) + " before it is answered; expected shards sorted by one of: " +
                   (keys.empty() ? "none" : joined(keys));
}

std::string problem_of_population(const std::string& text, const Json& run, const Problems& reported) {
  const std::string problem = population_problem(text, run["towers"].get<int64_t>());
  if (!problem.empty()) return problem;
  const Population population = read_population(text);
  if (population.averaged_weights && run["weight_ema"].is_null())
    return text + ": there are no averaged weights; give weight_ema";
  return population.kind == Population::Kind::own_tower ? own_tower_problem(run, reported) : "";
}

void check_populations(const Json& run, const Problems& reported, Problems& problems) {
  const Json& populations = run["populations"];
  const bool can = populations.is_array() && run["towers"].is_number_integer();
  for (size_t i = 0; can && i < populations.size(); ++i) {
    const std::string problem =
        populations[i].is_string() ? problem_of_population(populations[i], run, reported) : "";
    if (!problem.empty()) problems.add("populations[" + std::to_string(i) + "]", problem);
  }
}

void check_sort_key(const Json& task, const std::string& key, Problems& problems) {
  const std::vector<std::string> keys = facts_of<TaskFacts>(task).sort_keys(task);
  if (std::ranges::count(keys, key) == 0) {
    const std::string near = nearest(key, keys);
    problems.add("shards", "the task " + shown(task["name"]) + " has no key " + shown(key) +
                               " to sort by; there are: " + (keys.empty() ? "none" : joined(keys)) +
                               (near.empty() ? "" : "; did you mean \"sorted:" + near + "\"?"));
  }
}

void check_shards(const Json& run, const Problems& reported, Problems& problems) {
  const Json& shards = run["shards"];
  const std::string key = shards.is_string() ? sorted_by(shards) : "";
  if (key.empty() && shards.is_string() && shards != "" && shards != "iid") {
    problems.add("shards",
                 "expected iid or sorted:KEY, where KEY is one of the task's, got " + shown(shards));
  } else if (!key.empty() && is_fine("task", reported)) {
    check_sort_key(run["task"], key, problems);
  }
}

// Before the file is looked for: another format cannot be right.
void check_init_from(const Json& run, Problems& problems) {
  const Json& from = run["init_from"];
  const Json file = from.is_object() && from.contains("file") ? from["file"] : from;
  if (const std::string cure = file.is_string() ? pytorch_cure(file) : ""; !cure.empty())
    problems.add("init_from.file", "expected a safetensors file, got " + shown(file) + cure);
}

// Gradients of float16 activations alone are lost without it.
void check_loss_scaling(const Json& run, const Problems& reported, Problems& problems) {
  const bool half = run["precision"] == name_of(Precision::float16);
  Problems unused;
  const nlohmann::json standard = resolve(declared<LossScaling>(), Json::object(), "", unused);
  if (!half && is_fine("loss_scaling", reported) && nlohmann::json(run["loss_scaling"]) != standard) {
    problems.add("loss_scaling", "expected nothing beside precision " + shown(run["precision"]) + ", got " +
                                     shown(run["loss_scaling"]) + "; float16 alone scales its loss");
  }
  if (half && !run["average_weights_every"].is_null()) {
    problems.add("precision",
                 "expected float32, float64 or bfloat16 beside average_weights_every, where each rank "
                 "would skip steps of its own, got \"float16\"");
  }
}

// Averaging weights takes the place of averaging gradients, and knows ranks, not towers.
void check_weight_averaging(const Json& run, Problems& problems) {
  const Json& every = run["average_weights_every"];
  if (!every.is_number_integer() || every < 1) return;
  const std::string beside = " beside average_weights_every, got ";
  if (run["gradient_route"] != "reducer")
    problems.add("gradient_route", "expected \"reducer\"" + beside + shown(run["gradient_route"]));
  if (!run["weight_ema"].is_null())
    problems.add("weight_ema", "expected null" + beside + shown(run["weight_ema"]));
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

// The rule must be able to end a run, and evaluates it where it does.
void check_stop_early(const Json& run, Problems& problems) {
  const Json& rule = run["stop_early"];
  if (!rule.is_object() || !rule.contains("every") || !rule["every"].is_number_integer()) return;
  const Json &every = rule["every"], &after = rule["chance_after"], &steps = run["steps"];
  if (after.is_null() != rule["chance_above"].is_null())
    problems.add("stop_early.chance_after", "expected both chance_after and chance_above, or neither");
  if (after.is_number_integer() && after <= every) {
    problems.add("stop_early.chance_after", "expected more than every, " + every.dump() +
                                                ", whose first mean is what later ones are "
                                                "compared with, got " +
                                                after.dump());
  }
  for (const char* key : {"every", "chance_after"}) {
    if (rule[key].is_number_integer() && steps.is_number_integer() && rule[key] >= steps) {
      problems.add(std::string("stop_early.") + key,
                   "expected fewer than the " + steps.dump() + " steps of the run, got " + rule[key].dump());
    }
  }
  const Json& average = run["average_weights_every"];
  if (average.is_number_integer() && average > 0 && every > 0 &&
      every.get<int64_t>() % average.get<int64_t>() != 0) {
    problems.add("stop_early.every",
                 "expected a multiple of average_weights_every, " + average.dump() + ", got " + every.dump());
  }
}

// Weights are chosen among evaluations, of which there must be some.
void check_select(const Json& run, Problems& problems) {
  const Json& select = run["select"];
  if (!select.is_object()) return;
  if (run["eval_every"] == 0) {
    problems.add("eval_every", "expected above 0 beside select, which chooses among the evaluations, got 0");
  } else if (run["steps"].is_number_integer() && run["epochs"].is_null() &&
             run["eval_every"] >= run["steps"]) {
    problems.add("eval_every", "expected less than steps, " + run["steps"].dump() +
                                   ", beside select, which chooses among the evaluations, got " +
                                   run["eval_every"].dump());
  }
  const Json &listed = run["populations"], population = select.value("population", Json());
  if (listed.is_array() && std::ranges::count(listed, Json("own_tower")) > 0)
    problems.add("populations", "expected no own_tower beside select: it is of samples of the test split");
  const bool averaged = population == kAveragedWeights && !run["weight_ema"].is_null();
  if (population.is_string() && listed.is_array() && std::ranges::count(listed, population) == 0 &&
      !averaged) {
    problems.add("select.population", "expected one of the populations that are evaluated, " + listed.dump() +
                                          ", got " + shown(population));
  }
}

// The models that answer for what is labelled.
std::vector<std::string> answering(Labelled labelled) {
  std::vector<std::string> names;
  for (const std::string& name : registered_names("model"))
    if (const auto& facts = facts_of<ModelFacts>({{"name", name}});
        facts.answers_by_options || facts.answers_for == labelled)
      names.push_back(name);
  return names;
}

// What the components say of their own options in such a run.
void check_components(const Json& run, const Problems& reported, Problems& problems) {
  const auto fine = [&](const std::string& key) { return is_fine(key, reported); };
  RunOutline outline;
  const auto samples = samples_per_tower(run);
  if (samples && fine("towers") && fine("batch_per_tower") && fine("accumulate") &&
      run["towers"] == samples->size() && uneven_tower(*samples, run["accumulate"]) == nullptr) {
    outline.passes_per_step = run["accumulate"];
    outline.statistics_per_step = run["statistics_per"] == "step";
    outline.samples_per_tower =
        mapped(*samples, [&](int64_t of_step) { return of_step / outline.passes_per_step; });
  }
  if (fine("model")) outline.norm_channels = facts_of<ModelFacts>(run["model"]).norm_channels(run["model"]);
  if (fine("task")) outline.image_sizes = facts_of<TaskFacts>(run["task"]).image_sizes(run["task"]);
  if (fine("evaluation")) {
    const auto evaluation = read_options<Evaluation>(run["evaluation"]);
    outline.image_sizes = evaluation.sizes_seen(outline.image_sizes);
    if (!evaluation.crop && evaluation.stride != Evaluation().stride) {
      problems.add("evaluation.stride",
                   "has no effect without evaluation.crop; give the crops, or leave it out");
    }
    const bool pixels = !fine("task") || facts_of<TaskFacts>(run["task"]).labelled == Labelled::pixels;
    if (!pixels && !evaluation.in_one_piece()) {
      problems.add("evaluation", "expected the defaults on a task that does not label pixels, got " +
                                     shown(run["evaluation"]));
    }
  }
  if (fine("task") && fine("model")) {
    const Labelled labelled = facts_of<TaskFacts>(run["task"]).labelled;
    const Labelled answered = facts_of<ModelFacts>(run["model"]).answers(run["model"]);
    if (labelled != answered) {
      problems.add("model", "expected a model that answers for " + name_of(labelled) + ", as the task " +
                                shown(run["task"]["name"]) + " asks, got " + shown(run["model"]["name"]) +
                                ", which answers for " + name_of(answered) +
                                "; there are: " + joined(answering(labelled)));
    }
  }
  for (const char* family : {"task", "model", "strategy", "optimizer"})
    if (fine(family)) check_component(family, run[family], family, outline, problems);
}

}  // namespace

void check_agreement(const Json& run, const Problems& reported, Problems& problems) {
  check_length(run, problems);
  check_batch(run, problems);
  check_accumulation(run, problems);
  check_placement(run, problems);
  check_components(run, reported, problems);
  check_populations(run, reported, problems);
  check_shards(run, reported, problems);
  check_weight_averaging(run, problems);
  check_loss_scaling(run, reported, problems);
  check_stop_early(run, problems);
  check_select(run, problems);
  check_init_from(run, problems);
  check_timing(run, reported, check_agreement, problems);
}

std::optional<std::vector<int64_t>> samples_per_tower(const Json& run) {
  const Json towers = run.value("towers", Json()), batch = run.value("batch_per_tower", Json());
  if (!towers.is_number_integer()) return std::nullopt;
  if (batch.is_number_integer()) {
    return towers < 1 || towers > kMostTowers
               ? std::nullopt
               : std::optional(std::vector<int64_t>(towers.get<size_t>(), batch.get<int64_t>()));
  }
  const auto is_count = [](const Json& each) { return each.is_number_integer(); };
  return batch.is_array() && std::ranges::all_of(batch, is_count)
             ? std::optional(batch.get<std::vector<int64_t>>())
             : std::nullopt;
}

Json normalised(Json run) {
  if (run.contains("batch_per_tower")) {
    Json& batch = run["batch_per_tower"];
    if (batch.is_array() && !batch.empty() &&
        std::ranges::all_of(batch, [&](const Json& b) { return b == batch[0]; })) {
      batch = Json(batch[0]);
    }
  }
  return run;
}

int64_t Evaluation::scaled(int64_t size, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(size) * scale));
}

ImageSizes Evaluation::sizes_seen(const ImageSizes& of_task) const {
  ImageSizes seen(of_task.begin(), of_task.begin() + (of_task.empty() ? 0 : 1));
  if (crop) {
    seen.push_back(*crop);
    return seen;
  }
  for (size_t i = 1; i < of_task.size(); ++i)
    for (const double scale : scales)
      seen.push_back({scaled(of_task[i][0], scale), scaled(of_task[i][1], scale)});
  return seen;
}

RunSpec make_run(const Json& given) {
  Json run = normalised(given);
  auto spec = read_options<RunSpec>(run);
  spec.samples_per_tower = samples_per_tower(run).value();
  if (spec.init_from) spec.init_from->file = file_of_seed(spec.init_from->file, spec.seed);
  spec.id = run_id(run);
  run.erase("placement");
  spec.resolved = std::move(run);
  return spec;
}

std::vector<int64_t> RunSpec::samples_per_pass() const {
  return mapped(samples_per_tower, [this](int64_t samples) { return samples / accumulate; });
}

std::vector<std::string> RunSpec::evaluated() const {
  std::vector<std::string> all = populations;
  if (weight_ema) all.push_back(kAveragedWeights);
  return all;
}

Json RunSpec::placement() const {
  return {{"ranks", or_null(ranks)},
          {"device", or_null(device)},
          {"exchange", or_null(exchange)},
          {"threads", or_null(threads)}};
}

Json RunSpec::with_placement() const {
  Json whole = resolved;
  whole["placement"] = placement();
  return whole;
}

Json RunSpec::value_at(const std::string& key) const {
  const bool places = top_level(key) == "placement";
  const Json apart = places ? Json{{"placement", placement()}} : Json();
  const Json* value = find(places ? apart : resolved, key);
  return value == nullptr ? Json() : *value;
}

RunSpec read_resolved(const Json& resolved) {
  Mistakes mistakes("resolved run spec");
  std::vector<Parameter> declared = run_parameters();
  declared.erase(std::remove_if(declared.begin(), declared.end(),
                                [](const Parameter& parameter) { return parameter.name == "placement"; }),
                 declared.end());
  Problems problems;
  const Json run = resolve(declared, resolved, "", problems);
  if (problems.empty()) check_agreement(run, {}, problems);
  mistakes.add(problems);
  mistakes.throw_if_any();
  return make_run(run);
}

}  // namespace bnlab
