#include "harness/store/declarations.hpp"

#include <algorithm>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/fingerprint.hpp"
#include "harness/store/records.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// "3f2a9c01b4d5e6f7"
std::string fingerprint_of(const Json& declared) {
  return fingerprint(nlohmann::json(declared).dump());  // keys sorted
}

// Whatever the order of their keys.
bool is_same(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

// The comparisons, and beside them the rules that choose runs, and what all runs are, as they are asked.
Json declared_by(const Experiment& experiment) {
  Json declared = {{"contrasts", mapped(experiment.contrasts, canonical)}, {"settings", Json::object()}};
  for (const Parameter& key : run_parameters())
    if (changes_result(key.name) && experiment.asked.contains(key.name))
      declared["settings"][key.name] = experiment.asked[key.name];
  for (const char* rule : {"matrix", "exclude", "tune", "published"})
    if (experiment.asked.contains(rule)) declared[rule] = experiment.asked[rule];
  return declared;
}

Json to_json(const Declaration& declaration) {
  return {{"at", declaration.at},
          {"finished_runs", declaration.finished_runs},
          {"fingerprint", declaration.fingerprint},
          {"declared", declaration.declared}};
}

Declaration from_json(const Json& json) {
  return {.at = json.at("at"),
          .finished_runs = json.at("finished_runs"),
          .fingerprint = json.at("fingerprint"),
          .declared = json.at("declared")};
}

const Json& declarations_schema() {
  static const Json schema = Json::parse(R"({"type": "object", "required": ["declarations"], "properties": {
    "declarations": {"type": "array", "items": {
      "type": "object", "required": ["at", "finished_runs", "fingerprint", "declared"], "properties": {
        "at": {"type": "string"}, "finished_runs": {"type": "integer", "minimum": 0},
        "fingerprint": {"type": "string"},
        "declared": {"type": "object", "required": ["contrasts"], "properties": {
          "contrasts": {"type": "array"}, "settings": {"type": "object"}}}}}}}})");
  return schema;
}

// Files that older programs wrote have no settings, of which then nothing can be said.
bool declares_the_same(const Json& kept, const Json& now) {
  return is_same(kept, kept.contains("settings") ? now : without(now, "settings"));
}

std::vector<Declaration> declarations_in(const fs::path& folder) {
  const fs::path file = folder / kDeclarationsFile;
  if (!fs::exists(file)) return {};
  try {
    return mapped(read_json(file, declarations_schema()).at("declarations"), from_json);
  } catch (const Error& error) {
    throw Error(error.kind(),
                file.string() +
                    ": expected when comparisons were declared, as bnlab run writes it; take it "
                    "back from a copy (" +
                    error.what() + ")");
  }
}

void write_declarations(const fs::path& folder, const std::vector<Declaration>& all) {
  fs::create_directories(folder);
  write_json(folder / kDeclarationsFile, {{"declarations", mapped(all, to_json)}});
}

}  // namespace

bool Declaration::holds(const Contrast& contrast) const {
  const Json wanted = canonical(contrast);
  return std::ranges::any_of(declared.at("contrasts"), [&](const Json& one) { return is_same(one, wanted); });
}

Json canonical(const Contrast& contrast) {
  return {{"metric", contrast.metric},
          {"at", contrast.at.is_null() ? Json::object() : contrast.at},
          {"strategy", contrast.declared_strategy.empty() ? contrast.strategy : contrast.declared_strategy},
          {"above", contrast.declared_above.empty() ? contrast.above : contrast.declared_above},
          {"runs", contrast.runs.is_null() ? Json::object() : contrast.runs},
          {"above_runs", contrast.above_runs.is_null() ? Json::object() : contrast.above_runs},
          {"population", contrast.population},
          {"above_population", contrast.population_above()},
          {"equivalence_margin",
           contrast.equivalence_margin ? Json(*contrast.equivalence_margin) : Json(nullptr)}};
}

std::vector<Declaration> kept_declarations(const fs::path& results, const std::string& experiment) {
  return declarations_in(experiment_folder(results, experiment));
}

std::vector<std::string> keys_that_differ(const Declaration& earlier, const Declaration& later) {
  const Json &a = earlier.declared, &b = later.declared;
  std::vector<std::string> keys;
  for (const char* rule : {"matrix", "exclude", "tune", "published"})
    if (!is_same(a.value(rule, Json()), b.value(rule, Json()))) keys.emplace_back(rule);
  if (!a.contains("settings") || !b.contains("settings")) return keys;
  for (const Parameter& key : run_parameters()) {
    const auto in = [&](const Json& declared) { return declared.at("settings").value(key.name, Json()); };
    if (!is_same(in(a), in(b))) keys.push_back(key.name);
  }
  return keys;
}

std::string keep_declaration(const Experiment& experiment, const fs::path& results) {
  if (experiment.contrasts.empty()) return "";
  std::vector<Declaration> all = kept_declarations(results, experiment.name);
  const Json declared = declared_by(experiment);
  if (!all.empty() && declares_the_same(all.back().declared, declared)) return "";
  const std::vector<Record> records = list_records(results, experiment.name);
  const int64_t finished = std::ranges::count_if(records, &Record::finished);
  all.push_back({.at = now_utc(),
                 .finished_runs = finished,
                 .fingerprint = fingerprint_of(declared),
                 .declared = declared});
  write_declarations(experiment_folder(results, experiment.name), all);
  if (finished == 0) return "";
  return "what is declared " + std::string(all.size() > 1 ? "has changed" : "is kept for the first time") +
         " after " + std::to_string(finished) +
         " finished runs; the report tells which comparisons were not " + "declared before them";
}

void merge_declarations(const fs::path& into, const fs::path& from) {
  std::vector<Declaration> all = declarations_in(into);
  const std::vector<Declaration> theirs = declarations_in(from);
  if (theirs.empty()) return;
  all.insert(all.end(), theirs.begin(), theirs.end());
  std::ranges::stable_sort(all, {}, &Declaration::at);
  const auto again = std::ranges::unique(all, {}, &Declaration::fingerprint);
  all.erase(again.begin(), again.end());
  write_declarations(into, all);
}

}  // namespace bnlab
