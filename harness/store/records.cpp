#include "harness/store/records.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/experiment/fingerprint.hpp"
#include "harness/numerics/panel.hpp"
#include "harness/store/differences.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

std::string place_of(const Record& record) {
  const Json& exchange = record.at("placement.exchange");
  return record.placement() + (exchange.is_string() ? " " + exchange.get<std::string>() : "");
}

std::string cell_of(const Record& record) {
  Json spec = record.at("spec");
  spec.erase("seed");
  return fingerprint(place_of(record) + spec.dump());
}

// What tells the code that made a record: the parts of the panel that it depends on; of records that are
// older than the panel, the fingerprint of its sources.
Json then_of(const Record& record) {
  const Json& numerics = record.at("code.numerics");
  if (numerics.is_object()) return {{"numerics", numerics}};
  return {{"version", record.at("code.version")}, {"fingerprint", record.at("code.fingerprint")}};
}

Json now_of(const Record& record) {
  return {{"numerics", numerics_of(record.at("spec"), record.device())}};
}

Json entry_of(const Record& record) {
  return {{"run", record.run_id()},
          {"placement", record.placement()},
          {"cell", cell_of(record)},
          {"then", then_of(record)},
          {"now", now_of(record)},
          {"evidence", "a run of the cell was repeated and answered the same to the last digit"}};
}

bool is_of_one_cell(const Json& entry, const Json& other) {
  return std::ranges::all_of(std::vector{"cell", "then"}, [&](const char* key) {
    return entry.is_object() && entry.contains(key) && entry[key] == other[key];
  });
}

// What the last digits of a run on a GPU say.
constexpr const char* kOnGpus =
    " (on a GPU a run need not answer the same twice: some sums there have no fixed order, and training "
    "magnifies their last digits; where two runs of this program differ as well, this says nothing of the "
    "code)";

bool of_older_code(const Record& record) {
  return record.finished() && !record.why_other_numerics().empty();
}

// Whether what was confirmed is what this build computes.
bool holds_today(const Json& entry) {
  const Json& numerics = value_at(entry, "now.numerics");
  return numerics.is_object() && changed_numerics(numerics).empty();
}

// Gives the records of runs that were timed in the world of another one what its record has of them.
void share_times(std::vector<Record>& records) {
  std::map<std::pair<std::string, std::string>, Json> times;  // by run id and placement
  for (const Record& host : records) {
    const Json& others = host.at("result.timing.with");
    if (!others.is_array() || !(host.throughput_counts() || host.disturbed())) continue;
    for (const Json& other : others) times[{other.at("run_id"), host.placement()}] = other;
  }
  for (Record& record : records) {
    const auto found = times.find({record.run_id(), record.placement()});
    if (found != times.end() && record.timed_elsewhere()) record.take_times(found->second);
  }
}

}  // namespace

std::vector<Record> list_records(const std::filesystem::path& results, const std::string& experiment,
                                 std::vector<std::string>* problems) {
  std::vector<Record> records;
  const LastInputs last(experiment_folder(results, experiment));
  const Confirmations confirmations(experiment_folder(results, experiment));
  const auto ledger = ledger_of(experiment_folder(results, experiment));
  if (problems != nullptr)
    problems->insert(problems->end(), ledger->problems.begin(), ledger->problems.end());
  for (const auto& folder : known_folders(results, experiment)) {
    try {
      if (auto record = find_record(folder)) {
        check_place(*record);
        record->compare_inputs(last.of(record->at("spec")));
        if (confirmations.cover(*record)) record->confirm();
        records.push_back(std::move(*record));
      }
    } catch (const Error& error) {
      if (problems != nullptr) problems->push_back(error.what());
    }
  }
  share_times(records);
  return records;
}

std::map<std::string, std::vector<const Record*>> by_run_id(const std::vector<Record>& records) {
  std::map<std::string, std::vector<const Record*>> index;
  for (const Record& record : records) index[record.run_id()].push_back(&record);
  return index;
}

bool counts_before(const Record& one, const Record& other) {
  const auto rank = [](const Record& record) {
    return std::tuple(record.status() != Status::ok, !record.finished(), record.stale(),
                      record.at("placement.emulated") != false, record.placement());
  };
  return rank(one) < rank(other);
}

Confirmations::Confirmations(const fs::path& experiment_folder) : file_(experiment_folder / kConfirmedFile) {
  try {
    if (fs::exists(file_)) entries_ = read_json(file_);
  } catch (const Error&) {
    // Without it the runs are stale, which they were before it was written.
  }
  if (!entries_.is_array()) entries_ = Json::array();
}

bool Confirmations::cover(const Record& record) const {
  if (entries_.empty() || !of_older_code(record)) return false;
  const Json own = entry_of(record);
  return std::ranges::any_of(
      entries_, [&](const Json& entry) { return is_of_one_cell(entry, own) && holds_today(entry); });
}

void Confirmations::remove(const Record& repeated) {
  const Json own = entry_of(repeated);
  Json others = Json::array();
  for (const Json& entry : entries_)
    if (!is_of_one_cell(entry, own)) others.push_back(entry);
  entries_ = others;
}

void Confirmations::add(const Record& repeated) {
  remove(repeated);
  entries_.push_back(entry_of(repeated));
}

void Confirmations::keep() const {
  write_json(file_, entries_);
}

Confirmed confirm_results(const fs::path& into, const fs::path& again) {
  Confirmed confirmed;
  std::map<std::string, Record> repeats;  // by run id and place
  for (Record& record : list_records(again.parent_path(), again.filename().string())) {
    const std::string name = record.run_id() + " " + place_of(record);
    if (!record.finished()) continue;
    if (record.why_other_numerics().empty())
      repeats.emplace(name, std::move(record));
    else
      confirmed.left_out.push_back(name + " was repeated by other code than that of this program");
  }
  const std::vector<Record> records = list_records(into.parent_path(), into.filename().string());
  Confirmations confirmations(into);
  std::vector<const Record*> refuted;
  for (const Record& record : records) {
    const auto repeat = repeats.find(record.run_id() + " " + place_of(record));
    if (repeat == repeats.end() || !of_older_code(record)) continue;
    ++confirmed.repeated;
    const std::string differing = differences(answer_of(record), answer_of(repeat->second));
    if (differing.empty()) {
      confirmations.add(record);
    } else {
      confirmed.differing.push_back(repeat->first + ": " + differing +
                                    (record.device() == "cuda" ? kOnGpus : ""));
      refuted.push_back(&record);
    }
  }
  if (confirmed.repeated == 0) {
    if (std::ranges::none_of(records, of_older_code)) {
      throw Error(Error::Kind::usage,
                  into.string() + ": no run is of older code, so there is none to confirm");
    }
    throw Error(Error::Kind::usage, again.string() + " has no run of today's code that " + into.string() +
                                        " has of older code, on the same placement");
  }
  for (const Record* record : refuted) confirmations.remove(*record);
  confirmations.keep();
  for (const Record& record : records) {
    if (!of_older_code(record)) continue;
    const bool covered = confirmations.cover(record);
    ++(covered ? confirmed.covered : confirmed.uncovered);
    confirmed.timed += covered && record.throughput_counts();
  }
  return confirmed;
}

}  // namespace bnlab
