#include "harness/experiment/timing.hpp"

#include <map>
#include <string>

#include "harness/experiment/dotted.hpp"

namespace bnlab {
namespace {

// `run` with some keys set otherwise, as a spec gives it.
Json with_keys(Json run, const Json& keys) {
  for (const auto& [key, value] : keys.items()) set(run, key, value);
  return run;
}

Json given_beside(const Json& run) {
  Json other = with_keys(run, run["timing"]["against"]);
  other["timing"] = nullptr;
  return other;
}

Json given_with(const Json& run, const Json& keys) {
  Json other = with_keys(run, keys);
  other["timing"]["with"] = nullptr;
  return other;
}

void check_key(const std::string& key, const std::string& path, Problems& problems) {
  const std::string top = top_level(key);
  if (declarations(key).empty())
    problems.add(path, shown(key) + ": " + unknown_key(key));
  else if (top == "timing" || top == "placement" || top == "seed")
    problems.add(path, "expected keys that ranks of one placement may differ in, got " + shown(key));
}

void check_keys(const Json& keys, const std::string& path, Problems& problems) {
  for (const auto& [key, unused] : keys.items()) check_key(key, path, problems);
}

// Whether `other`, as a spec gives it, is a run.
void check_other(const Json& other, const std::string& path, CheckRun check, Problems& problems) {
  Problems found;
  const Json run = resolve(run_parameters(), other, "", found);
  if (found.empty()) check(run, {}, found);
  for (const auto& [key, problem] : found.found())
    problems.add(path, "makes a run that is none: " + key + ": " + problem);
}

}  // namespace

void check_timing(const Json& run, const Problems& reported, CheckRun check, Problems& problems) {
  if (run["timing"].is_null() || !reported.empty()) return;
  const Json& timing = run["timing"];
  const Json with = timing["with"].is_null() ? Json::array() : timing["with"];
  if (timing["against"].empty())
    problems.add("timing.against", "expected keys that the other run has otherwise, such as strategy");
  check_keys(timing["against"], "timing.against", problems);
  for (const Json& key : timing["together"]) check_key(key, "timing.together", problems);
  for (const Json& keys : with) check_keys(keys, "timing.with", problems);
  if (!problems.empty()) return;
  check_other(given_beside(run), "timing.against", check, problems);
  for (const Json& keys : with) check_other(given_with(run, keys), "timing.with", check, problems);
}

RunSpec timed_beside(const RunSpec& run) {
  return read_resolved(given_beside(run.resolved));
}

std::vector<RunSpec> timed_with(const RunSpec& run) {
  std::vector<RunSpec> others;
  for (const Json& keys : run.timing->with.value_or(std::vector<Json>()))
    others.push_back(read_resolved(given_with(run.resolved, keys)));
  return others;
}

void share_worlds(std::vector<RunSpec>& runs) {
  std::map<std::string, RunSpec*> first;
  const auto set_others = [](RunSpec& run, std::optional<std::vector<Json>> others) {
    run.resolved["timing"]["with"] = others ? Json(*others) : Json();
    run.timing->with = std::move(others);
    run.id = run_id(run.resolved);
  };
  for (RunSpec& run : runs) {
    if (!run.timing || run.timing->together.empty()) continue;
    Json shared = run.with_placement();
    shared["timing"].erase("with");
    const auto [host, is_first] = first.try_emplace(apart_from(shared, run.timing->together).dump(), &run);
    if (is_first) {
      set_others(run, std::vector<Json>());
      continue;
    }
    Json keys = Json::object();
    for (const std::string& key : run.timing->together)
      if (const Json* value = find(run.resolved, key)) keys[key] = *value;
    std::vector<Json> others = *host->second->timing->with;
    others.push_back(std::move(keys));
    set_others(*host->second, std::move(others));
    set_others(run, std::nullopt);
  }
}

}  // namespace bnlab
