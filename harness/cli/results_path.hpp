// RESULTS/EXPERIMENT as a command line names it.
#pragma once

#include <filesystem>
#include <string>

namespace bnlab {

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
