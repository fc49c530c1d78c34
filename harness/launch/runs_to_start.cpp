#include "harness/launch/runs_to_start.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <tuple>

#include "harness/launch/data_judged.hpp"
#include "harness/launch/dead_claims.hpp"
#include "harness/launch/disk_space.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/declarations.hpp"
#include "harness/store/inputs.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

bool has_text(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

// Writes the spec beside its results, as it was last asked.
void keep_spec(const Experiment& experiment, const std::string& results, std::vector<std::string>& remarks) {
  const std::filesystem::path folder = experiment_folder(results, experiment.name), file = folder / kSpecFile;
  const std::string text = experiment.asked.dump(2) + "\n";
  const bool there = std::filesystem::exists(file);
  if (there && read_text(file) == text) return;
  if (there) {
    const Json held = Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
    if (!held.is_object() || !held.contains("task")) {
      throw Error(Error::Kind::usage, file.string() +
                                          " is no spec of bnlab, which would be written there; name another "
                                          "folder with --results");
    }
    remarks.push_back(file.string() +
                      " held another spec and now holds this one; runs that only the other asked for stay");
  }
  std::filesystem::create_directories(folder);
  write_atomically(file, text);
}

bool has_checkpoints(const std::filesystem::path& folder) {
  std::error_code none;
  const std::filesystem::directory_iterator files(folder / kCheckpointsFolder, none);
  return !none && files != std::filesystem::directory_iterator();
}

// "bnlab run x --ranks 2" of "bnlab run x --ranks 4"
std::string with_option(const std::string& command, const std::string& option, const std::string& value) {
  return std::regex_replace(command, std::regex(" " + option + "[ =][^ ]+"), "") + " " + option + " " + value;
}

// What places a run as one was that is called "2x1-cuda-peers", where it is about to be placed otherwise.
std::string with_placement(std::string command, const std::string& placement, const Placement& here) {
  command = with_option(command, "--ranks", placement.substr(0, placement.find('x')));
  const auto says = [&](const auto& choice) {
    return placement.find("-" + name_of(choice)) != placement.npos;
  };
  const Device device = says(Device::cuda) ? Device::cuda : Device::cpu;
  if (device != here.device) command = with_option(command, "--device", name_of(device));
  for (const Exchange exchange : {Exchange::sockets, Exchange::peers})
    if (says(exchange) && exchange != here.exchange)
      command = with_option(command, "--exchange", name_of(exchange));
  return command;
}

// Tells of runs that begin anew although one that was placed otherwise could go on.
void remark_checkpoints(const std::vector<PlacedRun>& start, const std::string& experiment,
                        const LaunchRequest& request, std::vector<std::string>& remarks) {
  namespace fs = std::filesystem;
  std::vector<fs::path> begun = begun_folders(request.results_dir, experiment);
  std::erase_if(begun, [](const fs::path& folder) { return !has_checkpoints(folder); });
  std::map<std::string, std::vector<const PlacedRun*>> others;  // by the placement that has their checkpoints
  for (const PlacedRun& run : start) {
    std::set<std::string> placements;
    for (const fs::path& folder : begun)
      if (folder.parent_path() == fs::path(run.folder).parent_path()) placements.insert(placement_of(folder));
    if (!placements.empty() && !placements.contains(run.placement.name()))
      others[*placements.begin()].push_back(&run);
  }
  for (const auto& [placement, runs] : others) {
    const bool one = runs.size() == 1;
    const std::string ranks = placement.substr(0, placement.find('x'));
    remarks.push_back(std::to_string(runs.size()) + (one ? " run has" : " runs have") + " checkpoints of " +
                      ranks + (ranks == "1" ? " rank" : " ranks") + " (" + placement +
                      "), which other placements do not use: here " + (one ? "it begins" : "they begin") +
                      " anew, and " + (one ? "goes" : "go") +
                      " on with: " + with_placement(request.command, placement, runs[0]->placement));
  }
}

}  // namespace

std::vector<std::string> misplaced(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states) {
  std::vector<std::string> problems;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [spec, placement] = std::tie(runs[i].spec, runs[i].placement);
    if (!states[i].must_run || spec.average_weights_every == 0 || placement.towers_per_rank == 1) continue;
    const std::string problem = "average_weights_every: expected one tower per rank, got " +
                                std::to_string(placement.towers_per_rank) + "; use --ranks " +
                                std::to_string(spec.towers());
    if (!has_text(problems, problem)) problems.push_back(problem);
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
      if (!has_text(missing, error.what())) missing.emplace_back(error.what());
    }
  }
  inputs.keep();
  return missing;
}

std::vector<PlacedRun> runs_to_start(const Experiment& experiment, std::vector<PlacedRun>& runs,
                                     const LaunchRequest& request, LaunchSummary& summary,
                                     std::vector<std::string>& remarks) {
  const std::vector<std::string> missing = look_at_inputs(runs, request);
  const std::vector<RunState> states = survey(runs, request.redo, remarks);
  LastInputs last(experiment_folder(request.results_dir, experiment.name));
  std::vector<PlacedRun> start, finished;
  std::vector<PlacedRun*> originals;      // where those to start stand in `runs`
  std::map<std::string, std::string> ok;  // the placements of those that are, by id
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunState& state = states[i];
    if (!runs[i].inputs.is_null()) last.set(runs[i].spec, runs[i].inputs);
    if (state.damaged) remarks.push_back("damaged record: " + state.failure + "; its run starts again");
    runs[i].from_scratch = state.from_scratch;
    if (state.must_run) {
      runs[i].seen_started_at = state.record_started_at;
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
