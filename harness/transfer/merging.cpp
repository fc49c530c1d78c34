#include "harness/transfer/merging.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "harness/components/parameters.hpp"
#include "harness/numerics/panel.hpp"
#include "harness/queue/claims.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/declarations.hpp"
#include "harness/store/differences.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/records.hpp"
#include "harness/store/schema.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// What two results of one run have in common: all that neither the machine nor the moment decides.
Json comparable(const Record& record) {
  Json answer = answer_of(record);
  if (!record.at("code.numerics").is_object())  // older than the panel
    answer["fingerprint"] = record.at("code.fingerprint");
  return answer;
}

// Whether the parts of the panel that both records name are the same.
bool same_code(const Record& a, const Record& b) {
  const Json &one = a.at("code.numerics"), &other = b.at("code.numerics");
  return one.is_object() != other.is_object() ? false : !one.is_object() || same_numerics(one, other);
}

// What a folder's spec asks, but for what changes no result, with what tuning chose; nothing where it keeps
// none.
std::optional<Json> question_of(const fs::path& folder) {
  if (!fs::exists(folder / kSpecFile)) return std::nullopt;
  static const Json kObject = {{"type", "object"}};
  Json spec = read_json(folder / kSpecFile, kObject), question = spec;
  for (const auto& entry : spec.items())
    if (!changes_result(entry.key())) question.erase(entry.key());
  if (const std::optional<Json> tuning = read_tuning(folder / kTuningFile)) {
    for (const Json& group : value_at(*tuning, "groups"))
      question["tuned"][group.value("group", "")] = value_at(group, "chosen");
    if (const Json& length = value_at(*tuning, "length.chosen"); !length.is_null())
      question["tuned"]["steps"] = length;
  }
  return question;
}

// What was chosen in `asked`, with the scores of all folders.
void merge_tuning(const fs::path& into, const fs::path& asked, const std::vector<fs::path>& from) {
  const std::optional<Json> theirs = read_tuning(asked / kTuningFile);
  if (!theirs) return;
  Json tuning = *theirs;
  std::set<std::string> runs;
  for (const Json& run : tuning.value("runs", Json::array())) runs.insert(run.value("run_id", ""));
  std::vector<fs::path> folders = from;
  folders.push_back(into);
  for (const fs::path& folder : folders) {
    const Json other = read_tuning(folder / kTuningFile).value_or(Json::object());
    for (const auto& [id, score] : value_at(other, "scores").items())
      if (!tuning["scores"].contains(id)) tuning["scores"][id] = score;
    for (const Json& run : other.value("runs", Json::array()))
      if (runs.insert(run.value("run_id", "")).second) tuning["runs"].push_back(run);
  }
  write_json(into / kTuningFile, tuning);
}

using ByPlace = std::map<fs::path, Record>;  // by RUN_ID/PLACEMENT

ByPlace finished_in(const fs::path& folder, std::vector<std::string>& damaged) {
  ByPlace finished;
  for (Record& record : list_records(folder.parent_path(), folder.filename().string(), &damaged)) {
    const fs::path place = fs::path(record.run_id()) / record.placement();
    if (record.finished()) finished.emplace(place, std::move(record));
  }
  return finished;
}

// The experiments that the records name.
std::set<std::string> experiments_of(const ByPlace& runs) {
  std::set<std::string> names;
  for (const auto& [place, record] : runs) names.insert(record.experiment());
  return names;
}

std::string names_text(const std::set<std::string>& names) {
  return joined({names.begin(), names.end()});
}

bool have_one_in_common(const std::set<std::string>& some, const std::set<std::string>& others) {
  return std::ranges::any_of(some, [&](const std::string& name) { return others.contains(name); });
}

// Tells of a folder whose runs are of another experiment than those of the folder `known_of`.
void compare_experiments(const fs::path& known_of, const std::set<std::string>& known, const fs::path& folder,
                         const std::set<std::string>& theirs, TruncatedList& problems) {
  if (known.empty() || theirs.empty() || have_one_in_common(known, theirs)) return;
  problems.add("the runs in " + known_of.string() + " are of " + names_text(known) + ", those in " +
               folder.string() + " of " + names_text(theirs) + "; only runs of one experiment go together");
}

void copy_run(const Record& run, const fs::path& to, Claim& claim) {
  const fs::path& from = run.folder();
  fs::create_directories(to);
  if (!fs::exists(from / kRecordFile)) {  // it is kept in the ledger
    std::string log;
    read_metrics(from, [&](const Json& line) { log += line.dump() + "\n"; });
    if (!log.empty()) write_atomically(to / kMetricsFile, log);
    write_json(to / kRecordFile, run.json());
    return;
  }
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink() || !entry.is_regular_file() || name.front() == '.' || name == kRecordFile)
      continue;
    copy_synced(entry.path(), to / name);
    claim.beat();
  }
  write_atomically(to / kRecordFile, read_text(from / kRecordFile));
}

// Copies the run to where the claim works. What an attempt before has left there goes once the copy is whole.
void take_in(const Record& run, Claim& claim) {
  const fs::path copy = claim.folder().string() + ".copy";
  try {
    copy_run(run, copy, claim);
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove_all(copy, ignored);
    claim.withdraw();
    throw;
  }
  fs::remove_all(claim.folder());
  fs::rename(copy, claim.folder());
}

// Puts a run where INTO has `known` of it, or nothing. Whether that was done; if not, `left_out` says why.
bool put_in(const Record& record, const Record* known, const fs::path& folder, const ActiveProcesses& active,
            std::vector<std::string>& left_out) {
  const Json seen = known == nullptr ? Json() : known->at("started_at");
  const auto finished_since = [&](const fs::path& place) {
    try {
      const std::optional<Record> there = find_record(place);
      return there && there->finished() && there->at("started_at") != seen;
    } catch (const Error&) {  // a damaged record is none
      return false;
    }
  };
  std::string holder;
  std::optional<Claim> claim = Claim::take(folder, active, kTakenForDeadAfter, finished_since, holder);
  if (!claim) {
    left_out.push_back(folder.string() +
                       (holder.empty() ? " was finished meanwhile" : ": " + holder + " has it"));
    return false;
  }
  take_in(record, *claim);
  return claim->publish(/*keep_counting=*/false);
}

// Chooses between the runs that are there so far and those of another folder.
void choose(const ByPlace& theirs, Keep keep, ByPlace& all, std::set<fs::path>& to_copy,
            TruncatedList& problems) {
  for (const auto& [place, record] : theirs) {
    const auto other = all.find(place);
    if (other == all.end()) {
      all.emplace(place, record);
      to_copy.insert(place);
      continue;
    }
    std::string differing = differences(comparable(other->second), comparable(record));
    if (differing.empty() && !same_code(other->second, record))
      differing = "what they were computed with (code.numerics)";
    if (differing.empty()) continue;
    if (keep == Keep::neither) {
      problems.add(other->second.file().string() + " and " + record.file().string() +
                   " differ: " + differing + "; --keep into or --keep from says which one counts");
    } else if (keep == Keep::from) {
      other->second = record;
      to_copy.insert(place);
    }
  }
}

}  // namespace

Merged merge_results(const fs::path& into, const std::vector<fs::path>& from, Keep keep) {
  Merged merged;
  const ByPlace known = finished_in(into, merged.left_out);
  ByPlace all = known;
  std::set<fs::path> to_copy;
  TruncatedList problems("\n");
  fs::path asked = into;  // the folder whose spec counts
  std::optional<Json> question = question_of(into);
  fs::path named = into;  // the folder whose records say which experiment it is
  std::set<std::string> names = experiments_of(known);
  for (const fs::path& folder : from) {
    const ByPlace theirs = finished_in(folder, merged.left_out);
    if (theirs.empty())
      problems.add(folder.string() + ": no finished runs there; expected a folder RESULTS/EXPERIMENT");
    const std::set<std::string> their_names = experiments_of(theirs);
    compare_experiments(named, names, folder, their_names, problems);
    if (names.empty()) {
      names = their_names;
      named = folder;
    }
    const std::optional<Json> their_question = question_of(folder);
    if (!question && their_question) {
      question = their_question;
      asked = folder;
    }
    const std::string differing = their_question ? differences(*question, *their_question) : "";
    if (!differing.empty())
      problems.add("the specs in " + asked.string() + " and " + folder.string() + " differ: " + differing);
    choose(theirs, keep, all, to_copy, problems);
  }
  if (!problems.text().empty()) throw Error(Error::Kind::usage, "nothing was merged:\n" + problems.text());
  fs::create_directories(into);
  const ActiveProcesses active(into.parent_path());
  for (const fs::path& place : to_copy) {
    const auto before = known.find(place);
    const Record* there = before == known.end() ? nullptr : &before->second;
    if (put_in(all.at(place), there, into / place, active, merged.left_out))
      ++(there ? merged.replaced : merged.added);
  }
  if (asked != into && fs::exists(asked / kSpecFile))
    write_atomically(into / kSpecFile, read_text(asked / kSpecFile));
  merge_tuning(into, asked, from);
  for (const fs::path& folder : from) merge_declarations(into, folder);
  merged.there = static_cast<int>(known.size()) - merged.replaced;
  return merged;
}

}  // namespace bnlab
