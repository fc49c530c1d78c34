// Options that several commands have, and what their values mean.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "harness/json.hpp"
#include "harness/launch/launch.hpp"

namespace bnlab {

// SPEC: the file it names, or experiments/SPEC.json. Throws Error (usage) with the nearest known name.
std::string find_spec(const std::string& text);

// The same, but "" where there is none.
std::string find_spec_if_any(const std::string& text);

// "; did you mean sync?", or "" where no known name is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

// A component as the command line names it: `sync`, or `{"name": "sync", "route": "host"}`.
Json read_component(const std::string& text);

// The same with its defaults filled in. Throws Error (spec) with what is wrong, after the name of the command.
Json resolved_component(const std::string& command, const std::string& family, const std::string& text);

void add_spec(CLI::App& command, std::string& spec);  // the one positional argument
CLI::Option* add_json_flag(CLI::App& command, bool& json);
void add_ranks_option(CLI::App& command, int& ranks, const std::string& help);
void add_device_option(CLI::App& command, std::string& device, const std::string& default_text = "");
void add_results_option(CLI::App& command, std::string& results_dir);

// --ranks, --device, --jobs, --only, --redo, --retry, --results
void add_placement_options(CLI::App& command, LaunchOptions& options);

// --data, else BNLAB_DATA, else "".
void add_data_option(CLI::App& command, std::string& data_dir);

}  // namespace bnlab
