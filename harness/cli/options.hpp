// Options that several commands have, and what their values mean.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/error.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/json.hpp"
#include "harness/launch/launch.hpp"

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

// "; did you mean sync?", or "" where no known name is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

// A component as the command line names it: `sync`, or `{"name": "sync", "route": "host"}`.
Json read_component(const std::string& text);

// The same with its defaults filled in. Throws Error (spec) with what is wrong, after the name of the
// command.
Json resolved_component(const std::string& command, const std::string& family, const std::string& text);

void add_spec(CLI::App& command, std::string& spec);                         // the first positional argument
void add_overrides(CLI::App& command, std::vector<std::string>& overrides);  // those behind it
CLI::Option* add_json_flag(CLI::App& command, bool& json);
void add_ranks_option(CLI::App& command, int& ranks, const std::string& help);
void add_device_option(CLI::App& command, std::string& device, const std::string& default_text = "");
void add_results_option(CLI::App& command, std::string& results_dir);

// Where and how runs are computed, and which of them.
void add_placement_options(CLI::App& command, LaunchRequest& request);

// --data, else BNLAB_DATA, else "".
void add_data_option(CLI::App& command, std::string& data_dir);

// Refuses all other options beside each of `alone`, which would not look at them. Let through are `allowed`
// and those that the environment may give.
void stand_alone(CLI::App& command, const std::vector<const CLI::Option*>& alone,
                 const std::vector<const CLI::Option*>& allowed);

// Checks that a text is one of these, and answers another with the nearest.
CLI::Validator one_of(const std::vector<std::string>& known);

// Checks that a number is above 0, or at least 0.
CLI::Validator above_zero();
CLI::Validator at_least_zero();

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

// --notify: a command of the user's (launch/notify.hpp).
void add_notify_option(CLI::App& command, std::string& notify);

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

// The option --spec, which says the run where no record does.
void add_spec_of_weights(CLI::App& command, std::string& spec);

}  // namespace bnlab
