#include "harness/records/record.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "harness/error.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/records/environment.hpp"

namespace bnlab {
namespace {

constexpr std::array<const char*, 7> kStatusNames = {"ok",      "diverged", "oom",        "timeout",
                                                     "crashed", "error",    "interrupted"};

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json placement_json(const RunAccount& account) {
  const Placement& placement = account.placement;
  return {{"name", placement.name()},
          {"ranks", placement.ranks},
          {"towers_per_rank", placement.towers_per_rank},
          {"device", placement.device},
          {"backend", account.backend},
          {"exchange", placement.exchange ? Json(name_of(*placement.exchange)) : Json()},
          {"threads_per_rank", account.threads_per_rank},
          {"emulated", placement.towers_per_rank > 1},
          {"jobs", account.jobs},
          {"launcher", account.launcher}};
}

Json outcome_json(const Outcome& outcome) {
  return {{"status", name(outcome.status)},
          {"message", text_or_null(outcome.message)},
          {"rank", outcome.rank ? Json(*outcome.rank) : Json(nullptr)},
          {"signal", text_or_null(outcome.signal)},
          {"log_tail", outcome.log_tail}};
}

}  // namespace

const char* name(Status status) {
  return kStatusNames[static_cast<size_t>(status)];
}

Status status_named(const std::string& name) {
  const auto found = std::find(kStatusNames.begin(), kStatusNames.end(), name);
  if (found == kStatusNames.end()) {
    throw Error(Error::Kind::data,
                "expected an outcome (ok, diverged, oom, timeout, crashed, error, interrupted), got " + name);
  }
  return static_cast<Status>(found - kStatusNames.begin());
}

Json finite(const Json& value, std::vector<std::string>& notes, const std::string& path) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) return value;
    const char* what = std::isnan(number) ? "NaN" : number > 0 ? "+infinity" : "-infinity";
    notes.push_back((path.empty() ? "the value" : path) + " was " + what);
    return nullptr;
  }
  if (value.is_object()) {
    Json checked = Json::object();
    for (const auto& [key, entry] : value.items()) {
      checked[key] = finite(entry, notes, path.empty() ? key : path + "." + key);
    }
    return checked;
  }
  if (value.is_array()) {
    Json checked = Json::array();
    for (size_t i = 0; i < value.size(); ++i) {
      checked.push_back(finite(value[i], notes, path + "[" + std::to_string(i) + "]"));
    }
    return checked;
  }
  return value;
}

Json compose_record(const RunAccount& account) {
  std::vector<std::string> notes = account.notes;
  Json record = finite({{"schema_version", kRecordSchemaVersion},
                        {"kind", "bnlab.run"},
                        {"experiment", account.experiment},
                        {"run_id", account.spec.id},
                        {"code", code_version()},
                        {"command", account.command},
                        {"spec", account.spec.resolved},
                        {"strategy_label", label(account.spec.strategy)},
                        {"placement", placement_json(account)},
                        {"environment", account.environment},
                        {"outcome", outcome_json(account.outcome)},
                        {"started_at", account.started_at},
                        {"wall_time_s", account.wall_time_s},
                        {"result", account.result}},
                       notes);
  record["notes"] = notes;
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

Record::Record(Json value, std::filesystem::path file) : value_(std::move(value)), file_(std::move(file)) {
  const Json& version = at("schema_version");
  if (at("kind") != "bnlab.run" || version != kRecordSchemaVersion) {
    throw Error(Error::Kind::data, file_.string() + ": expected a bnlab.run record of schema version " +
                                       std::to_string(kRecordSchemaVersion) + ", got kind " +
                                       at("kind").dump() + ", version " + version.dump());
  }
  for (const char* path :
       {"experiment", "run_id", "strategy_label", "placement.name", "placement.device", "outcome.status"}) {
    if (!at(path).is_string()) throw Error(Error::Kind::data, file_.string() + ": " + path + " is missing");
  }
  for (const char* path : {"spec.seed", "placement.ranks", "wall_time_s"}) {
    if (!at(path).is_number()) throw Error(Error::Kind::data, file_.string() + ": " + path + " is missing");
  }
  status_named(at("outcome.status").get<std::string>());
}

std::string Record::experiment() const {
  return at("experiment").get<std::string>();
}
std::string Record::run_id() const {
  return at("run_id").get<std::string>();
}
std::string Record::placement() const {
  return at("placement.name").get<std::string>();
}
int Record::ranks() const {
  return at("placement.ranks").get<int>();
}
std::string Record::device() const {
  return at("placement.device").get<std::string>();
}
std::string Record::strategy_label() const {
  return at("strategy_label").get<std::string>();
}
uint64_t Record::seed() const {
  return at("spec.seed").get<uint64_t>();
}
Status Record::status() const {
  return status_named(at("outcome.status").get<std::string>());
}
double Record::wall_time_s() const {
  return at("wall_time_s").get<double>();
}

const Json& Record::at(const std::string& path) const {
  return value_at(value_, path);
}

std::optional<double> Record::number(const std::string& path) const {
  const Json& value = at(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

bool Record::stale() const {
  const Json build =
      code_version();  // a record without a fingerprint is older than any build that asks for one
  return at("code.version") != build.at("version") || at("code.fingerprint") != build.at("fingerprint");
}

bool Record::throughput_counts() const {
  return status() == Status::ok && at("placement.emulated") == false && at("placement.jobs") == 1;
}

bool is_of(const Record& record, const RunSpec& run) {
  const Json& exchange = record.at("placement.exchange");  // null where there was none, absent in old records
  return record.run_id() == run.id && (!run.ranks || *run.ranks == record.ranks()) &&
         (!run.device || *run.device == record.device()) &&
         (!run.exchange || exchange.is_null() || exchange == name_of(*run.exchange));
}

std::optional<Record> find_record(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kRecordFile;
  if (!std::filesystem::exists(file)) return std::nullopt;
  return Record(read_json(file), file);
}

bool is_done(const std::filesystem::path& folder, bool retry) {
  const std::optional<Record> record = find_record(folder);
  return record && record->finished() && (!retry || record->status() == Status::ok);
}

std::vector<Record> list_records(const std::filesystem::path& results, const std::string& experiment,
                                 std::vector<std::string>* problems) {
  std::vector<Record> records;
  for (const auto& folder : run_folders(results, experiment)) {
    try {
      if (auto record = find_record(folder)) records.push_back(std::move(*record));
    } catch (const Error& error) {
      if (problems != nullptr) problems->push_back(error.what());
    }
  }
  return records;
}

std::map<std::string, std::vector<const Record*>> by_run_id(const std::vector<Record>& records) {
  std::map<std::string, std::vector<const Record*>> index;
  for (const Record& record : records) index[record.run_id()].push_back(&record);
  return index;
}

}  // namespace bnlab
