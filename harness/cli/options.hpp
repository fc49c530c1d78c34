// Options that several commands have, and what their values mean.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

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

// --ranks, --device, --exchange, --threads, --jobs, --only, --slice, --redo, --retry, --results
void add_placement_options(CLI::App& command, LaunchRequest& request);

// --data, else BNLAB_DATA, else "".
void add_data_option(CLI::App& command, std::string& data_dir);

}  // namespace bnlab
