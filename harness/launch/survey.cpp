#include "harness/launch/survey.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/counting/single_values.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

const std::vector<std::string> kRedo = {"stale", "disturbed", "failed", "all"};

bool is_among(const std::string& word, const std::vector<std::string>& words) {
  return std::ranges::find(words, word) != words.end();
}

void check_redo(const std::vector<std::string>& redo, const std::vector<PlacedRun>& runs) {
  std::vector<std::string> known = mapped(runs, [](const PlacedRun& run) { return run.spec.id; });
  known.insert(known.end(), kRedo.begin(), kRedo.end());
  for (const std::string& word : redo) {
    if (!is_among(word, known)) {
      const std::string near = nearest(word, known);
      throw Error(Error::Kind::usage, "--redo " + word +
                                          ": expected stale, disturbed, failed, all or the id of a run" +
                                          (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }
}

// When a finished record was begun, which tells two records of a run apart.
std::string started_at(const Record& record) {
  const Json& start = record.at("started_at");
  return record.finished() && start.is_string() ? start.get<std::string>() : "";
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The state by the record in one of the run's folders, which is read into `record`.
RunState state_in(const std::filesystem::path& folder, const PlacedRun& run,
                  const std::vector<std::string>& redo, const Confirmations& confirmations,
                  std::optional<Record>& record) {
  RunState state;
  state.placement = folder.filename().string();
  state.from_scratch = is_among("all", redo) || is_among(run.spec.id, redo);
  try {
    record = find_record(folder);
    if (!record) return state;
    state.record_started_at = started_at(*record);
    check_place(*record);
    check_spec(*record, run.spec);
    record->compare_inputs(run.inputs);
    if (confirmations.cover(*record)) record->confirm();
    const Json& message = record->at("outcome.message");
    state.outcome = record->status();
    state.failure = message.is_string() ? first_line(message.get<std::string>()) : "";
    state.stale = record->finished() ? record->why_stale() : "";
    state.stopped_early = record->why_stopped_early();
    state.disturbed = record->disturbed();
    state.from_scratch = state.from_scratch || (!state.stale.empty() && is_among("stale", redo)) ||
                         (state.disturbed && is_among("disturbed", redo));
    state.must_run =
        !record->finished() || state.from_scratch || (record->failed() && is_among("failed", redo));
  } catch (const Error& error) {
    state.damaged = true;
    state.failure = first_line(error.what());
  }
  return state;
}

// Whether what is named of the run's placement holds where this record was computed.
bool is_where_named(const Record& record, const PlacedRun& run) {
  const Json& exchange = record.at("placement.exchange");  // null where there was none
  return (!run.named.ranks || record.ranks() == run.placement.ranks) &&
         (!run.named.device || record.device() == name_of(run.placement.device)) &&
         (!run.named.exchange || exchange.is_null() || !run.placement.exchange ||
          exchange == name_of(*run.placement.exchange));
}

RunState state_of(const PlacedRun& run, const std::vector<std::string>& redo,
                  const Confirmations& confirmations) {
  const std::filesystem::path own_folder = run.folder;
  std::optional<Record> record;
  RunState own = state_in(own_folder, run, redo, confirmations, record);
  if (own.outcome == Status::ok && own.stale.empty()) return own;
  std::optional<RunState> best;
  Record best_record;
  for (const std::filesystem::path& folder : known_folders(own_folder.parent_path())) {
    const std::string name = folder.filename().string();
    if (name == own.placement) continue;
    RunState state = state_in(folder, run, redo, confirmations, record);
    if (state.outcome != Status::ok || !is_of(*record, run.spec)) continue;
    if (!is_where_named(*record, run)) {
      own.elsewhere.push_back(name);
      continue;
    }
    if (best && !counts_before(*record, best_record)) continue;
    best = std::move(state);
    best_record = std::move(*record);
  }
  std::ranges::sort(own.elsewhere);
  if (!best || (own.outcome == Status::ok && !best->stale.empty())) return own;
  best->record_started_at = own.record_started_at;  // in the folder in which the run would start
  if (best->must_run) best->placement = own.placement;
  return *best;
}

// What is said of runs that start although they are done on placements that do not count.
void remark_elsewhere(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states,
                      std::vector<std::string>& remarks) {
  std::set<std::string> there;
  int done = 0;
  NamedParts named;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!states[i].must_run || states[i].elsewhere.empty()) continue;
    ++done;
    named = runs[i].named;
    for (const std::string& placement : states[i].elsewhere) there.insert(placement);
  }
  if (done == 0) return;
  std::vector<std::string> options;
  if (named.ranks && !named.by_launcher) options.emplace_back("--ranks");
  if (named.device) options.emplace_back("--device");
  if (named.exchange) options.emplace_back("--exchange");
  const std::string start = std::to_string(done) + " of the runs to start " + (done == 1 ? "is" : "are") +
                            " done on other placements (" + joined(std::vector(there.begin(), there.end())) +
                            "): ";
  remarks.push_back(start + (named.by_launcher ? "bnlab run without the launcher counts them"
                                               : "without " + joined(options, " and ") + " they count"));
}

// What is said of runs that will fail at their first step.
void remark_refusals(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states,
                     std::vector<std::string>& remarks) {
  std::map<std::string, std::string> known;  // by what of a run decides it, which its seed does not
  std::map<std::string, int> refused;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSpec& run = runs[i].spec;
    if (!states[i].must_run) continue;
    const Json deciding = {run.task, run.model, run.strategy, run.samples_per_pass(), run.accumulate};
    const auto [entry, is_new] = known.try_emplace(deciding.dump());
    if (is_new) entry->second = single_value_refusal(run);
    if (!entry->second.empty()) ++refused[entry->second];
  }
  for (const auto& [refusal, count] : refused)
    remarks.push_back(std::to_string(count) + " of the runs to start will fail: " + refusal);
}

}  // namespace

bool finished_since(const PlacedRun& run, const std::string& folder) {
  try {
    const std::optional<Record> record = find_record(folder);
    return record && record->finished() && started_at(*record) != run.seen_started_at;
  } catch (const Error&) {  // a damaged record is none
    return false;
  }
}

std::string RunState::name() const {
  return damaged ? "damaged" : outcome ? name_of(*outcome) : "missing";
}

void count_skipped(const RunState& state, LaunchSummary& summary) {
  ++summary.skipped;
  if (state.outcome == Status::ok) ++summary.done_on[state.placement];
  if (!state.must_run && state.outcome != Status::ok) {
    ++summary.failed_before;
    ++summary.failures[state.name() + ": " + state.failure];
  }
  if (!state.stale.empty()) ++summary.stale[state.stale];
  summary.disturbed += state.disturbed;
}

std::vector<RunState> survey(const std::vector<PlacedRun>& runs, const std::vector<std::string>& redo,
                             std::vector<std::string>& remarks) {
  check_redo(redo, runs);
  const std::filesystem::path run_folder = runs.empty() ? "" : std::filesystem::path(runs.front().folder);
  const Confirmations confirmations(run_folder.parent_path().parent_path());
  std::vector<RunState> states =
      mapped(runs, [&](const PlacedRun& run) { return state_of(run, redo, confirmations); });
  remark_elsewhere(runs, states, remarks);
  remark_refusals(runs, states, remarks);
  return states;
}

}  // namespace bnlab
