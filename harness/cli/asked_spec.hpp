// Which experiment a command line names, and where it was looked for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/arguments.hpp"
#include "harness/experiment/spec.hpp"

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

inline constexpr const char* kSpecHelp =
    "Spec file, the name of one in experiments/, or an experiment's folder of results";

// A spec, with keys set otherwise.
struct AskedSpec {
  std::string name;  // "" where the command does without
  Words overrides;

  void describe(Arguments& option, const char* spec = "SPEC", const char* help = kSpecHelp);
  Experiment load(std::string& results_dir) const { return load_asked(name, results_dir, overrides); }
};

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

}  // namespace bnlab
