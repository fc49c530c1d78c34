#include "harness/launch/survey.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <tuple>

#include "harness/counting/single_values.hpp"
#include "harness/launch/data_judged.hpp"
#include "harness/queue/active_processes.hpp"
#include "harness/queue/claims.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/declarations.hpp"
#include "harness/store/inputs.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr int kCheckpointsAtOnce = 3;
constexpr int kTensorsPerWeight = 3;

double bytes_in(const std::filesystem::path& folder) {
  double bytes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::error_code gone;
    const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    bytes += gone ? 0 : static_cast<double>(size);
  }
  return bytes;
}

// Of some finished runs.
struct Sizes {
  double folders = 0, weights = 0;
  int runs = 0;

  void add(double folder, double weights_file) {
    folders += folder;
    weights += weights_file;
    ++runs;
  }
};

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
std::string begun(const Record& record) {
  const Json& begun = record.at("started_at");
  return record.finished() && begun.is_string() ? begun.get<std::string>() : "";
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
  state.afresh = is_among("all", redo) || is_among(run.spec.id, redo);
  try {
    record = find_record(folder);
    if (!record) return state;
    state.begun = begun(*record);
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
    state.afresh = state.afresh || (!state.stale.empty() && is_among("stale", redo)) ||
                   (state.disturbed && is_among("disturbed", redo));
    state.starts = !record->finished() || state.afresh || (record->failed() && is_among("failed", redo));
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
  best->begun = own.begun;  // of the folder in which the run would start
  if (best->starts) best->placement = own.placement;
  return *best;
}

// What is said of runs that start although they are done on placements that do not count.
void remark_elsewhere(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states,
                      std::vector<std::string>& remarks) {
  std::set<std::string> there;
  int done = 0;
  NamedParts named;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!states[i].starts || states[i].elsewhere.empty()) continue;
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
    if (!states[i].starts) continue;
    const Json deciding = {run.task, run.model, run.strategy, run.samples_per_pass(), run.accumulate};
    const auto [entry, is_new] = known.try_emplace(deciding.dump());
    if (is_new) entry->second = single_value_refusal(run);
    if (!entry->second.empty()) ++refused[entry->second];
  }
  for (const auto& [refusal, count] : refused)
    remarks.push_back(std::to_string(count) + " of the runs to start will fail: " + refusal);
}

// Removes the claims that processes have left which were killed after they had published a run, or, where any
// placement will do, during an attempt on another one than that on which the run is `ok`. Who takes the claim
// of a finished run clears up after such a process; it can be taken once the process is dead, or has been
// silent for so long that anybody may take it.
void remove_dead_claims(const std::string& experiment, const std::vector<PlacedRun>& finished,
                        const std::map<std::string, std::string>& ok, const LaunchRequest& request) {
  std::map<std::filesystem::path, std::vector<std::filesystem::path>> claimed;  // by the folder of the run
  for (const auto& folder : claimed_folders(request.results_dir, experiment))
    claimed[folder.parent_path()].push_back(folder);
  std::optional<ActiveProcesses> active;
  for (const PlacedRun& run : finished) {
    const std::filesystem::path own = run.folder;
    const auto done = ok.find(run.spec.id);
    const std::string place = done == ok.end() ? own.filename().string() : done->second;
    const bool anywhere = done != ok.end() && !run.named.ranks && !run.named.device && !run.named.exchange &&
                          !run.spec.ranks && !run.spec.device && !run.spec.exchange;
    // run.seen is empty here, so that any finished record counts.
    const auto is_finished = [&](const std::filesystem::path& there) { return finished_since(run, there); };
    for (const std::filesystem::path& folder : claimed[own.parent_path()]) {
      const bool is_elsewhere = folder.filename() != place;
      if (is_elsewhere && !anywhere) continue;
      std::string holder;
      try {
        if (!active) active.emplace(request.results_dir);
        auto claim = Claim::take(folder, *active, request.steal_after, is_finished, holder);
        if (claim && is_elsewhere) claim->drop();
        if (claim && !is_elsewhere) claim->withdraw();  // the record has gone: somebody began the run anew
      } catch (const Error&) {                          // this user may not write into the folder
      }
    }
  }
}

// Writes the spec beside its results, as it was last asked.
void keep_spec(const Experiment& experiment, const std::string& results, std::vector<std::string>& remarks) {
  const std::filesystem::path folder = experiment_folder(results, experiment.name), file = folder / kSpecFile;
  const std::string text = experiment.asked.dump(2) + "\n";
  const bool there = std::filesystem::exists(file);
  if (there && read_text(file) == text) return;
  if (there) {
    remarks.push_back(file.string() +
                      " held another spec and now holds this one; runs that only the other asked for stay");
  }
  std::filesystem::create_directories(folder);
  write_atomically(file, text);
}

void look_at_disk(const Experiment& experiment, const std::vector<PlacedRun>& start,
                  const LaunchRequest& request, std::vector<std::string>& remarks) {
  const std::string& results = request.results_dir;
  std::error_code unknown;
  std::filesystem::create_directories(results, unknown);
  const std::optional<double> left = free_disk(results);
  const std::string cure = "; free some, or name another folder with --results";
  const std::vector<const RunSpec*> runs = mapped(start, [](const PlacedRun& run) { return &run.spec; });
  const auto need = disk_need(runs, list_records(results, experiment.name), request.jobs);
  if (left && is_disk_full(*left, need)) {
    throw Error(Error::Kind::environment, results + ": " + mib_left(*left) +
                                              " of disk are left, too few for records and weights" +
                                              (need ? ", which take about " + mib_needed(*need) : "") + cure);
  }
  if (left && need && *need > *left) {
    remarks.push_back("the runs to start will take about " + mib_needed(*need) +
                      " of disk, as far as finished ones tell, and " + mib_left(*left) + " are left in " +
                      results + cure);
  }
}

}  // namespace

bool is_disk_full(double left, std::optional<double> need) {
  constexpr double kEnough = 64 << 20;
  return left < std::min(kEnough, need.value_or(kEnough));
}

std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side) {
  std::map<std::string, Sizes> by_model;
  Sizes all;
  for (const Record& record : records) {
    if (record.status() != Status::ok) continue;
    const double there = bytes_in(record.folder());  // nothing of a run that is kept in the ledger
    const double folder = there > 0 ? there : static_cast<double>(record.json().dump().size());
    const double weights = record.number("result.memory.weights_bytes").value_or(0);
    by_model[record.at("spec.model").dump()].add(folder, weights);
    all.add(folder, weights);
  }
  if (all.runs == 0) return std::nullopt;
  double folders = 0;
  std::vector<double> checkpoints;  // of each run
  for (const RunSpec* run : runs) {
    const auto found = by_model.find(run->resolved.at("model").dump());
    const Sizes& like = found == by_model.end() ? all : found->second;
    folders += like.folders / like.runs;
    checkpoints.push_back(
        run->checkpoint_every > 0 ? kCheckpointsAtOnce * kTensorsPerWeight * like.weights / like.runs : 0);
  }
  std::ranges::sort(checkpoints, std::greater());
  checkpoints.resize(std::min(checkpoints.size(), static_cast<size_t>(side_by_side)));
  for (const double bytes : checkpoints) folders += bytes;
  return folders;
}

bool finished_since(const PlacedRun& run, const std::string& folder) {
  try {
    const std::optional<Record> record = find_record(folder);
    return record && record->finished() && begun(*record) != run.seen;
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
  if (!state.starts && state.outcome != Status::ok) {
    ++summary.failed_before;
    ++summary.failures[state.name() + ": " + state.failure];
  }
  if (!state.stale.empty()) ++summary.stale[state.stale];
  summary.disturbed += state.disturbed;
}

std::optional<double> free_disk(const std::string& results) {
  std::filesystem::path folder = std::filesystem::absolute(results);
  while (!std::filesystem::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  std::error_code unknown;
  const auto space = std::filesystem::space(folder, unknown);
  return unknown ? std::nullopt : std::optional(static_cast<double>(space.available));
}

std::string mib_needed(double bytes) {
  return fixed(std::ceil(bytes / (1 << 20)), 0) + " MiB";
}

std::string mib_left(double bytes) {
  return fixed(std::floor(bytes / (1 << 20)), 0) + " MiB";
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

std::vector<std::string> misplaced(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states) {
  std::vector<std::string> problems;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [spec, placement] = std::tie(runs[i].spec, runs[i].placement);
    if (!states[i].starts || spec.average_weights_every == 0 || placement.towers_per_rank == 1) continue;
    const std::string problem = "average_weights_every: expected one tower per rank, got " +
                                std::to_string(placement.towers_per_rank) + "; use --ranks " +
                                std::to_string(spec.towers());
    if (!is_among(problem, problems)) problems.push_back(problem);
  }
  return problems;
}

std::vector<std::string> look_at_inputs(std::vector<PlacedRun>& runs, const LaunchRequest& request) {
  Inputs inputs(request.results_dir, request.data_dir,
                [](const std::string& text) { std::cerr << "note: " << text << std::endl; });
  std::vector<std::string> missing;
  for (PlacedRun& run : runs) {
    try {
      run.inputs = inputs.of(run.spec);
    } catch (const std::exception& error) {  // also where this user may not read a folder
      if (!is_among(error.what(), missing)) missing.emplace_back(error.what());
    }
  }
  inputs.keep();
  return missing;
}

namespace {

bool has_checkpoints(const std::filesystem::path& folder) {
  std::error_code none;
  const std::filesystem::directory_iterator files(folder / kCheckpointsFolder, none);
  return !none && files != std::filesystem::directory_iterator();
}

// "bnlab run x --ranks 2" of "bnlab run x --ranks 4"
std::string with_ranks(const std::string& command, const std::string& ranks) {
  static const std::regex asked(" --ranks[ =][0-9]+");
  return std::regex_replace(command, asked, "") + " --ranks " + ranks;
}

// Tells of runs that begin anew although one on another number of ranks could go on.
void remark_checkpoints(const std::vector<PlacedRun>& start, const std::string& experiment,
                        const LaunchRequest& request, std::vector<std::string>& remarks) {
  namespace fs = std::filesystem;
  std::vector<fs::path> begun = begun_folders(request.results_dir, experiment);
  std::erase_if(begun, [](const fs::path& folder) { return !has_checkpoints(folder); });
  std::map<std::string, int> others;  // runs by the placement that has their checkpoints
  for (const PlacedRun& run : start) {
    std::set<std::string> placements;
    for (const fs::path& folder : begun)
      if (folder.parent_path() == fs::path(run.folder).parent_path()) placements.insert(placement_of(folder));
    if (!placements.empty() && !placements.contains(run.placement.name())) ++others[*placements.begin()];
  }
  for (const auto& [placement, runs] : others) {
    const std::string ranks = placement.substr(0, placement.find('x'));
    remarks.push_back(std::to_string(runs) + (runs == 1 ? " run has" : " runs have") + " checkpoints of " +
                      ranks + (ranks == "1" ? " rank" : " ranks") + " (" + placement +
                      "), which other numbers of ranks do not use: here it begins anew, and goes on with: " +
                      with_ranks(request.command, ranks));
  }
}

}  // namespace

std::vector<PlacedRun> runs_to_start(const Experiment& experiment, std::vector<PlacedRun>& runs,
                                     const LaunchRequest& request, LaunchSummary& summary,
                                     std::vector<std::string>& remarks) {
  const std::vector<std::string> missing = look_at_inputs(runs, request);
  const std::vector<RunState> states = survey(runs, request.redo, remarks);
  LastInputs last(experiment_folder(request.results_dir, experiment.name));
  std::vector<PlacedRun> start, finished;
  std::vector<PlacedRun*> originals;      // of those to start
  std::map<std::string, std::string> ok;  // the placements of those that are, by id
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunState& state = states[i];
    if (!runs[i].inputs.is_null()) last.set(runs[i].spec, runs[i].inputs);
    if (state.damaged) remarks.push_back("damaged record: " + state.failure + "; its run starts again");
    runs[i].afresh = state.afresh;
    if (state.starts) {
      runs[i].seen = state.begun;
      start.push_back(runs[i]);
      originals.push_back(&runs[i]);
      continue;
    }
    count_skipped(state, summary);
    finished.push_back(runs[i]);
    if (state.outcome == Status::ok) ok[runs[i].spec.id] = state.placement;
  }
  remove_dead_claims(experiment.name, finished, ok, request);
  if (const auto problems = misplaced(runs, states); !problems.empty())
    throw Error(Error::Kind::usage, joined(problems, "\n"));
  const JudgedData data =
      judge_data(mapped(start, [](const PlacedRun& run) { return &run; }), request, false);
  if (!data.refusals.empty()) throw Error(Error::Kind::usage, joined(data.refusals, "\n"));
  remarks.insert(remarks.end(), data.remarks.begin(), data.remarks.end());
  for (size_t i = 0; i < start.size(); ++i) {
    start[i].notes.insert(start[i].notes.end(), data.facts[i].begin(), data.facts[i].end());
    originals[i]->notes = start[i].notes;
  }
  const auto lacking =
      std::ranges::count_if(start, [](const PlacedRun& run) { return run.inputs.is_null(); });
  if (lacking > 0) {
    throw Error(Error::Kind::usage, std::to_string(lacking) + " of " + std::to_string(start.size()) +
                                        " runs to start lack what they read:\n" + joined(missing, "\n"));
  }
  remark_checkpoints(start, experiment.name, request, remarks);
  if (!start.empty()) look_at_disk(experiment, start, request, remarks);
  for (const std::string& message : missing)
    remarks.push_back("whether finished runs are up to date could not be seen: " + message);
  last.keep();
  keep_spec(experiment, request.results_dir, remarks);
  remember_placement(experiment, start, request);
  if (!start.empty()) {
    const std::string late = keep_declaration(experiment, request.results_dir);
    if (!late.empty()) remarks.push_back(late);
  }
  return start;
}

}  // namespace bnlab
