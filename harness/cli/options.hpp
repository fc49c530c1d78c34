// Options that several commands have, and what their values mean.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/arguments.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/launch/launch.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// The experiment that SPEC names: a spec file; the stem of one in experiments/; the folder of an experiment's
// results, or its name below `results_dir`, which keep their spec. Of a folder of results, `results_dir`
// becomes the one around it. Throws Error (usage) with the nearest known name.
Experiment load_asked(const std::string& spec, std::string& results_dir,
                      const std::vector<std::string>& overrides = {});

// The same, but nothing where there is none.
std::optional<Experiment> load_if_any(const std::string& spec, std::string& results_dir,
                                      const std::vector<std::string>& overrides = {});

// The experiments of a folder of results: by the spec that is kept there, where one is, since that is what
// was asked last, else by their names.
std::vector<std::string> all_experiments(const std::string& results_dir);

// A component as the command line names it: `sync`, or `{"name": "sync", "route": "host"}`.
Json read_component(const std::string& text);

// The same with its defaults filled in. Throws Error (spec) with what is wrong, after the name of the
// command.
Json resolved_component(const std::string& command, const std::string& family, const std::string& text);

inline constexpr int kMostAtOnce = 4096;  // ranks of a run, or runs side by side

inline constexpr const char* kSpecHelp =
    "Spec file, the name of one in experiments/, or an experiment's folder of results";

// Groups of options that several commands have. A request has them as members.

// A spec, with keys set otherwise.
struct AskedSpec {
  std::string name;  // or "", where the command does without
  Words overrides;

  void describe(Arguments& option, const char* spec = "SPEC", const char* help = kSpecHelp);
  Experiment load(std::string& results_dir) const { return load_asked(name, results_dir, overrides); }
};

// Where and how runs are computed, and which of them.
struct AskedLaunch : LaunchRequest {
  void describe(Arguments& option);
};

// A trained network: its weights and, where no record says it, the spec of the run that left them.
struct AskedWeights {
  EvaluateJob job;  // but for what follows from the weights
  std::string spec;

  void describe(Arguments& option);  // but for the weights
};

// Single ones.
Argument& describe_device(Arguments& option, std::string& device, const std::string& otherwise = "");
Argument& describe_data(Arguments& option, std::string& folder);  // --data, else BNLAB_DATA, else ""
Argument& describe_run_spec(Arguments& option, std::string& spec);
void describe_results(Arguments& option, std::string& folder);
void describe_notify(Arguments& option, std::string& command);  // of the user's (launch/notify.hpp)

// What a file of bnlab probe --out holds. Throws Error (usage) where it is none.
Json read_probe(const std::string& file);

// What `act` answers by a probe. Throws Error (usage) where the probe lacks a part that it needs.
template <class Act>
auto by_probe(const std::string& file, Act act) {
  try {
    return act();
  } catch (const Json::exception&) {
    throw Error(Error::Kind::usage,
                file + ": expected a file of bnlab probe --out, got one that lacks a part");
  }
}

// What `act` answers. What it refuses or cannot read was named on the command line: it throws Error (usage)
// then.
template <class Act>
auto as_usage(Act act) {
  try {
    return act();
  } catch (const Error& error) {
    const bool is_mistake = error.kind() == Error::Kind::refused || error.kind() == Error::Kind::data;
    throw Error(is_mistake ? Error::Kind::usage : error.kind(), error.what());
  }
}

// RESULTS/EXPERIMENT as a command line names it.
struct ExperimentPath {
  std::filesystem::path results;
  std::string name;
};

inline ExperimentPath experiment_path(const std::string& text) {
  std::filesystem::path folder = std::filesystem::absolute(text).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return {folder.parent_path(), folder.filename().string()};
}

inline std::filesystem::path experiment_folder(const std::string& text) {
  const ExperimentPath path = experiment_path(text);
  return path.results / path.name;
}

// Which run a weights file is of. Fills in what follows from job.weights, a weights.safetensors or the
// folder of the run that left it: the run's spec (of `spec`, a spec of one run, where that is not ""), its
// threads, its shadow pairs, and where none are named its populations. Throws Error (usage) where that
// does not say which run it is, or it has no such population.
EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec);

}  // namespace bnlab
