#include "harness/store/record.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "harness/experiment/dotted.hpp"
#include "harness/numerics/panel.hpp"
#include "harness/store/environment.hpp"
#include "harness/store/inputs.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

Json placement_json(const RunAccount& account) {
  const Placement& placement = account.placement;
  return {{"name", placement.name()},
          {"ranks", placement.ranks},
          {"towers_per_rank", placement.towers_per_rank},
          {"device", name_of(placement.device)},
          {"nodes", placement.nodes},
          {"backend", account.backend},
          {"exchange", or_null(placement.exchange)},
          {"threads_per_rank", account.threads_per_rank},
          {"emulated", placement.emulated()},
          {"jobs", account.jobs},
          {"runs_before", account.runs_before},
          {"launcher", account.launcher}};
}

// "700 files, 812345678 bytes, 1f3a9c2b4d5e6f70"
std::string size_text(const Json& inputs) {
  const auto text = [&](const char* key) { return inputs.contains(key) ? inputs[key] : Json("unknown"); };
  const Json print = text("fingerprint");
  return text("files").dump() + " files, " + text("bytes").dump() + " bytes, " +
         (print.is_string() ? print.get<std::string>() : print.dump());
}

std::optional<double> largest(const Json& of_ranks) {
  std::optional<double> peak;
  for (const Json& bytes : of_ranks)
    if (bytes.is_number()) peak = std::max(peak.value_or(0), bytes.get<double>());
  return peak;
}

Json outcome_json(const Outcome& outcome) {
  return {{"status", name(outcome.status)},
          {"message", or_null(outcome.message)},
          {"rank", or_null(outcome.rank)},
          {"signal", or_null(outcome.signal)},
          {"log_tail", outcome.log_tail}};
}

// Older records lack these: one follows from the counts that mean_iou is of, the other from the spec.
void erase_what_follows(Json& value) {
  if (value.is_object())
    for (const char* key : {"mean_dice", "values_per_image"}) value.erase(key);
  if (value.is_structured())
    for (Json& part : value) erase_what_follows(part);
}

}  // namespace

Status status_named(const std::string& name) {
  const std::string all = names(Status{});
  const std::vector<std::string> known = split_names(all);
  if (std::ranges::count(known, name) == 0)
    throw Error(Error::Kind::data, "expected an outcome (" + all + "), got " + name);
  return choice_of<Status>(name);
}

Json finite(const Json& value, std::vector<std::string>& notes, const std::string& path) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) return value;
    const char* what = std::isnan(number) ? "NaN" : number > 0 ? "+infinity" : "-infinity";
    notes.push_back((path.empty() ? "the value" : path) + " was " + what);
    return nullptr;
  }
  Json checked = value;
  if (value.is_structured()) {
    for (auto& [key, entry] : checked.items()) {
      const std::string below = path.empty() ? key : path + "." + key;
      entry = finite(entry, notes, value.is_array() ? path + "[" + key + "]" : below);
    }
  }
  return checked;
}

Json compose_record(const RunAccount& account) {
  std::vector<std::string> notes = account.notes;
  Json environment = account.environment;
  for (const auto& [name, value] : account.variables) environment["variables"][name] = value;
  Json record = finite({{"schema_version", kRecordSchemaVersion},
                        {"kind", "bnlab.run"},
                        {"experiment", account.experiment},
                        {"run_id", account.spec.id},
                        {"code", code_version(account.spec.resolved, name_of(account.placement.device))},
                        {"command", account.command},
                        {"spec", account.spec.resolved},
                        {"strategy_label", label(account.spec.strategy)},
                        {"placement", placement_json(account)},
                        {"environment", environment},
                        {"outcome", outcome_json(account.outcome)},
                        {"started_at", account.started_at},
                        {"wall_time_s", account.wall_time_s},
                        {"result", account.result}},
                       notes);
  record["notes"] = notes;
  if (!account.inputs.is_null()) record["inputs"] = account.inputs;
  return record;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

const Json& value_at(const Json& object, const std::string& dotted_path) {
  static const Json kNull;
  const Json* found = find(object, dotted_path);
  return found == nullptr ? kNull : *found;
}

Record::Record(Json value, std::filesystem::path file, std::filesystem::path folder)
    : value_(std::move(value)),
      file_(std::move(file)),
      folder_(folder.empty() ? file_.parent_path() : std::move(folder)) {
  const Json& version = at("schema_version");
  if (at("kind") != "bnlab.run" || version != kRecordSchemaVersion) {
    throw Error(Error::Kind::data, file_.string() + ": expected a bnlab.run record of schema version " +
                                       std::to_string(kRecordSchemaVersion) + ", got kind " +
                                       at("kind").dump() + ", version " + version.dump());
  }
  if (const auto wrong = misfits(value_, record_schema(), Keys::any); !wrong.empty())
    throw Error(Error::Kind::data, file_.string() + ": " + wrong.front());
  for (const char* path : {"experiment", "run_id", "strategy_label", "placement.name", "placement.device",
                           "placement.ranks", "outcome.status", "spec.seed", "wall_time_s"}) {
    if (at(path).is_null()) throw Error(Error::Kind::data, file_.string() + ": " + path + " is missing");
  }
}

std::optional<double> Record::number(const std::string& path) const {
  const Json& value = at(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string Record::why_stopped_early() const {
  const Json& reason = at("result.stopped_early.reason");
  return reason.is_string() ? reason.get<std::string>() : "";
}

std::string Record::why_stale() const {
  const std::string changed = why_other_numerics();
  return changed.empty() || confirmed_ ? changed_inputs_ : changed;
}

std::string Record::why_other_numerics() const {
  const Json& numerics = at("code.numerics");
  if (!numerics.is_object())
    return "the record does not say what it was computed with, and no repeated run has confirmed it";
  const std::string changed = changed_numerics(numerics);
  return changed.empty() ? "" : "what computes it has changed since: " + changed;
}

void Record::compare_inputs(const Json& today) {
  for (const auto& [part, words] : {std::pair("data", "the data have"),
                                    {"model", "the exported model has"},
                                    {"weights", "the weights of init_from have"}}) {
    const Json& then = at("inputs." + std::string(part));
    const Json& now = value_at(today, part);
    if (then.is_object() && now.is_object() &&
        value_at(then, "fingerprint") != value_at(now, "fingerprint")) {
      changed_inputs_ =
          std::string(words) + " changed since (" + size_text(then) + " then, " + size_text(now) + " now)";
      return;
    }
  }
  changed_inputs_.clear();
}

void Record::take_times(const Json& of_other) {
  Json& result = value_["result"];
  if (!result.is_object()) return;
  result["timing"] = of_other.at("timing");
  if (result.contains("throughput") && result["throughput"].is_object())
    result["throughput"].update(of_other.at("throughput"), /*merge_objects=*/true);
}

bool Record::timed_elsewhere() const {
  const Json& timing = at("spec.timing");
  return timing.is_object() && timing.contains("with") && timing["with"].is_null();
}

bool Record::disturbed() const {
  return at("result.timing.disturbed") == true;
}

bool Record::had_the_machine() const {
  const bool timed = !at("spec.timing").is_object() || at("result.timing").is_object();
  return timed && !disturbed() && (timed_elsewhere() || at("placement.jobs") == 1);
}

bool Record::throughput_counts() const {
  return status() == Status::ok && at("placement.emulated") == false && had_the_machine();
}

std::optional<double> number_of(const Record& record, const Measure& measure) {
  const bool emulated = measure.counts_if == CountsIf::emulated;
  const bool counts = measure.counts_if == CountsIf::ok ||
                      (record.had_the_machine() && record.at("placement.emulated") == emulated);
  if (record.status() != Status::ok || !counts || measure.path.empty()) return std::nullopt;
  if (measure.largest_of_ranks) return largest(record.at(measure.path[0]));
  std::optional<double> number = record.number(measure.path[0]);
  if (!number) return std::nullopt;
  for (size_t i = 1; i < measure.path.size(); ++i) *number += record.number(measure.path[i]).value_or(0);
  return *number * measure.times;
}

std::optional<double> metric_of(const Record& record, const std::string& metric,
                                const std::string& population) {
  if (record.status() != Status::ok) return std::nullopt;
  if (const Measure* measure = find_measure(metric)) return number_of(record, *measure);
  // A strategy without running statistics is evaluated once, as "saved": it knows no other population.
  const Json& asked = record.at("spec.populations");
  const bool known = record.at("result.final." + population).is_object() ||
                     std::find(asked.begin(), asked.end(), population) == asked.end();
  return record.number("result.final." + (known ? population : "saved") + "." + metric);
}

Json answer_of(const Record& record) {
  Json result = record.at("result");
  erase_what_follows(result);
  if (result.is_object())
    for (const char* key : {"start_s", "throughput", "timing", "memory", "resumed_at_steps", "cuda_graph"})
      result.erase(key);
  return {{"outcome", name(record.status())}, {"inputs", record.at("inputs")}, {"result", result}};
}

bool is_of(const Record& record, const RunSpec& run) {
  const Json& exchange = record.at("placement.exchange");  // null where there was none, absent in old records
  return record.run_id() == run.id && (!run.ranks || *run.ranks == record.ranks()) &&
         (!run.device || name_of(*run.device) == record.device()) &&
         (!run.exchange || exchange.is_null() || exchange == name_of(*run.exchange));
}

std::optional<Record> find_record(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kRecordFile;
  if (std::filesystem::exists(file)) return Record(read_json(file), file);
  const auto kept = kept_run(folder);
  return kept ? std::optional(Record(kept->record, kept->line, folder)) : std::nullopt;
}

bool holds_result(const std::filesystem::path& folder) {
  try {
    const std::optional<Record> record = find_record(folder);
    return record && has_result(record->status());
  } catch (const Error&) {
    return false;
  }
}

void check_place(const Record& record) {
  const std::filesystem::path& folder = record.folder();
  const std::filesystem::path own = std::filesystem::path(record.run_id()) / record.placement();
  if (own != folder.parent_path().filename() / folder.filename()) {
    throw Error(Error::Kind::data, record.file().string() + " is the record of " + own.string() +
                                       " and lies in a wrong folder; move it there or delete it");
  }
}

void check_spec(const Record& record, const RunSpec& run) {
  const Json& spec = record.at("spec");
  if (spec != run.resolved && read_resolved(spec).id != run.id) {  // keys that change no result may differ
    throw Error(Error::Kind::data,
                record.file().string() + " does not hold the spec of its run " + run.id + "; it was altered");
  }
}

}  // namespace bnlab
