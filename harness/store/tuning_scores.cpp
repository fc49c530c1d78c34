#include "harness/store/tuning_scores.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr const char* kCure = "; remove the file, and bnlab run makes it anew";

std::filesystem::path tuning_file(const std::filesystem::path& results, const std::string& experiment) {
  return experiment_folder(results, experiment) / kTuningFile;
}

Json group_json(const TunedGroup& group) {
  const auto tried = mapped(group.candidates, [](const Candidate& candidate) {
    Json json{{"setting", candidate.setting}, {"mean", candidate.mean()}, {"diverged", candidate.diverged()}};
    if (candidate.dropped_after) json["dropped_after_steps"] = *candidate.dropped_after;
    return json;
  });
  return {{"group", group.name},
          {"chosen", group.chosen().setting},
          {"at_edge_of_grid", group.at_edge},
          {"tried", tried},
          {"best_mean_at_each_length", group.best_means}};
}

const Json& tuning_schema() {
  static const Json schema = Json::parse(R"({"type": "object", "properties": {
    "rule": {"type": "string"}, "length": {"type": ["object", "null"]}, "scores": {"type": "object"},
    "groups": {"type": "array", "items": {"type": "object", "properties": {"group": {"type": "string"}}}},
    "runs": {"type": "array", "items": {"type": "object", "properties": {"run_id": {"type": "string"}}}}}})");
  return schema;
}

// Whether the scores of a file are of the metric and the population that choose now.
bool is_of_same_measure(const Json& file, const Tuning& tuning) {
  const Json& rule = value_at(file, "rule");
  return rule.is_string() && rule.get<std::string>().starts_with(tuning.measure());
}

// What made a score: the run's setting, inputs and times.
Json run_json(const Tuning& tuning, const RunSpec& run, const Record& record) {
  return {{"run_id", run.id},
          {"group", tuned_group(tuning.asked, run)},
          {"setting", tuned_setting(tuning.asked, run)},
          {"steps", run.steps},
          {"seed", run.seed},
          {"started_at", record.at("started_at")},
          {"wall_time_s", record.at("wall_time_s")},
          {"inputs", record.at("inputs")},
          {"numerics", record.at("code.numerics")}};
}

}  // namespace

std::optional<Json> read_tuning(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    return read_json(file, tuning_schema());
  } catch (const Error& error) {
    throw Error(error.kind(), error.what() + std::string(kCure));
  }
}

TuningScores scores_of(const Tuning& tuning, const std::vector<Record>& records) {
  TuningScores scores;
  for (const Record& record : records) {
    if (std::ranges::find(tuning.runs.runs, record.run_id(), &RunSpec::id) == tuning.runs.runs.end())
      continue;  // an earlier spec asked for it
    if (record.status() == Status::ok) {
      const auto score = metric_of(record, tuning.asked.metric, tuning.asked.population);
      if (!score) {
        throw Error(Error::Kind::spec, "tune.metric: " + record.run_id() + " ended ok and has no " +
                                           tuning.asked.metric + " to choose by (" + record.file().string() +
                                           "); name a metric that such runs have: they need not run again");
      }
      scores[record.run_id()] = score;
    } else if (record.status() == Status::diverged) {
      scores.emplace(record.run_id(), std::nullopt);
    }
  }
  return scores;
}

Json scores_json(const TuningScores& scores) {
  Json json = Json::object();
  for (const auto& [run_id, score] : scores) json[run_id] = score ? Json(*score) : Json(nullptr);
  return json;
}

TuningScores read_scores(const Json& json, const std::filesystem::path& file) {
  const auto is_score = [](const Json& value) { return value.is_null() || value.is_number(); };
  if (!json.is_object() || !std::ranges::all_of(json, is_score)) {
    throw Error(Error::Kind::data,
                file.string() + ": expected a number or null for the id of each run that tuned" + kCure);
  }
  TuningScores scores;
  for (const auto& [run_id, score] : json.items())
    scores[run_id] = score.is_null() ? std::nullopt : std::optional(score.get<double>());
  return scores;
}

void keep_scores(const Experiment& experiment, const std::vector<Record>& records,
                 const std::filesystem::path& results) {
  const Tuning& tuning = *experiment.tuning;
  const std::filesystem::path file = tuning_file(results, experiment.name);
  // What other keys of the spec were chosen by stays: their runs may be gone.
  TuningScores all = kept_scores(experiment, results);
  Json before = read_tuning(file).value_or(Json::object());
  if (!is_of_same_measure(before, tuning)) before = Json::object();
  std::map<std::string, Json> earlier;
  for (const Json& run : before.value("runs", Json::array())) earlier[run.value("run_id", "")] = run;
  for (const auto& [id, score] : scores_of(tuning, records)) all[id] = score;
  Json runs = Json::array();
  std::set<std::string> used;
  for (const RunSpec& run : needed_runs(tuning, all)) {
    if (!used.insert(run.id).second) continue;
    const auto record = std::ranges::find_if(records, [&](const Record& r) { return is_of(r, run); });
    if (record != records.end())
      runs.push_back(run_json(tuning, run, *record));
    else if (earlier.contains(run.id))
      runs.push_back(earlier.at(run.id));
  }
  for (const auto& [id, run] : earlier)
    if (!used.contains(id)) runs.push_back(run);
  const Json now{{"rule", tuning.sentence()},
                 {"length", tuning.length_json()},
                 {"groups", mapped(tuning.groups, group_json)},
                 {"scores", scores_json(all)},
                 {"spec", tuning.runs.asked},
                 {"runs", runs}};
  const bool same_choice =
      before.value("rule", Json()) == now.at("rule") && before.value("groups", Json()) == now.at("groups");
  if (records.empty() && same_choice) return;
  std::filesystem::create_directories(file.parent_path());
  write_json(file, now);
}

TuningScores kept_scores(const Experiment& experiment, const std::filesystem::path& results) {
  const std::filesystem::path file = tuning_file(results, experiment.name);
  const std::optional<Json> json = read_tuning(file);
  if (!json) return {};
  const TuningScores scores = read_scores(value_at(*json, "scores"), file);
  return is_of_same_measure(*json, *experiment.tuning) ? scores : TuningScores{};
}

}  // namespace bnlab
