#include "harness/cli/asked_spec.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "harness/components/words.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExperiments = "experiments";
constexpr size_t kLongestShown = 200;  // characters of a name in a message

// The specs in a folder.
std::vector<fs::path> specs_in(const fs::path& folder) {
  std::vector<fs::path> specs;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") specs.push_back(entry.path());
  std::ranges::sort(specs);
  return specs;
}

// Those that can be named without their folder: in experiments/ and, behind these, in the folders in it.
std::vector<fs::path> known_specs() {
  std::error_code none;
  const std::set<fs::path> below(fs::directory_iterator(kExperiments, none), fs::directory_iterator());
  std::vector<fs::path> specs = specs_in(kExperiments);
  for (const fs::path& folder : below) std::ranges::copy(specs_in(folder), std::back_inserter(specs));
  return specs;
}

// What can be typed for a spec, by the name that it goes under: those beside `spec` by their files.
std::map<std::string, std::string> known_names(const std::string& spec, const std::string& results_dir) {
  std::map<std::string, std::string> known;
  for (const std::string& name : list_experiments(results_dir)) known[name] = name;
  for (const fs::path& file : known_specs()) known[file.stem().string()] = file.stem().string();
  const fs::path folder = fs::path(spec).parent_path();
  for (const fs::path& file : specs_in(folder.empty() ? "." : folder))
    known.try_emplace(file.stem().string(), (folder / file.filename()).string());
  return known;
}

// With the places that were looked at, and the nearest name that one of them has.
std::string no_such_spec(const std::string& spec, const std::string& results_dir) {
  std::error_code none;
  if (fs::is_directory(spec, none)) {
    const std::string keeps_none = spec + ": this folder keeps no " + kSpecFile + "; name ";
    for (const auto& entry : fs::directory_iterator(spec, none))
      if (fs::exists(entry.path() / kSpecFile, none))
        return keeps_none + "a folder in it, such as " + entry.path().string();
    const fs::path name = (fs::path(spec) / "").lexically_normal().parent_path().filename();
    const auto known = mapped(known_specs(), [](const fs::path& file) { return file.stem(); });
    return keeps_none +
           (std::ranges::count(known, name) > 0 ? "its spec: " + name.string() : "the spec's own file");
  }
  const std::map<std::string, std::string> known = known_names(spec, results_dir);
  const std::string near =
      nearest(fs::path(spec).stem().string(), mapped(known, [](const auto& name) { return name.first; }));
  const std::string where = fs::is_directory(kExperiments, none)
                                ? std::string(kExperiments) + "/"
                                : std::string(kExperiments) + "/ (looked for in " +
                                      fs::current_path().string() +
                                      ", where none is: call it from bnlab's folder)";
  return spec.substr(0, kLongestShown) + ": no such spec file, and none of this name in " + where + " or " +
         results_dir + "/" +
         (near.empty() ? "; bnlab init FILE begins one" : "; did you mean " + known.at(near) + "?");
}

void refuse_unreadable(const std::string& spec) {
  struct stat status{};
  const bool is_hidden = ::stat(spec.c_str(), &status) != 0 && errno == EACCES;
  if (is_hidden || (S_ISREG(status.st_mode) && ::access(spec.c_str(), R_OK) != 0))
    throw Error(Error::Kind::usage, spec + ": cannot be read: " + std::strerror(errno));
}

std::optional<Experiment> found(const std::string& spec, std::string& results_dir,
                                const std::vector<std::string>& overrides) {
  std::error_code none;
  refuse_unreadable(spec);
  if (fs::is_regular_file(spec, none)) return load_experiment(spec, overrides);
  const std::vector<fs::path> known = known_specs();
  if (const auto named = std::ranges::find(known, fs::path(spec), &fs::path::stem); named != known.end())
    return load_experiment(named->string(), overrides);
  fs::path folder = (fs::path(spec) / "").lexically_normal().parent_path();  // without a slash at its end
  folder = folder == "." ? fs::current_path() : folder;
  if (fs::is_regular_file(folder / kSpecFile, none)) {
    results_dir = folder.has_parent_path() ? folder.parent_path().string() : ".";
    return load_experiment((folder / kSpecFile).string(), overrides, folder.filename().string());
  }
  const fs::path kept = experiment_folder(results_dir, spec) / kSpecFile;
  const bool is_name = fs::path(spec).filename() == spec;
  return is_name && fs::is_regular_file(kept, none)
             ? std::optional(load_experiment(kept.string(), overrides, spec))
             : std::nullopt;
}

}  // namespace

std::optional<Experiment> load_if_any(const std::string& spec, std::string& results_dir,
                                      const std::vector<std::string>& overrides) {
  std::optional<Experiment> experiment = found(spec, results_dir, overrides);
  if (experiment && experiment->tuning) settle(*experiment, kept_scores(*experiment, results_dir));
  return experiment;
}

Experiment load_asked(const std::string& spec, std::string& results_dir,
                      const std::vector<std::string>& overrides) {
  std::optional<Experiment> experiment = load_if_any(spec, results_dir, overrides);
  if (!experiment) throw Error(Error::Kind::usage, no_such_spec(spec, results_dir));
  return std::move(*experiment);
}

std::vector<std::string> all_experiments(const std::string& results_dir) {
  return mapped(list_experiments(results_dir), [&](const std::string& name) {
    const fs::path folder = experiment_folder(results_dir, name);
    return fs::exists(folder / kSpecFile) ? folder.string() : name;
  });
}

void AskedSpec::describe(Arguments& option, const char* spec, const char* help) {
  option(spec, name, help);
  option("[KEY=VALUE]", overrides,
         "Keys of the spec to set otherwise, such as steps=10 or task.size=[32,32]");
}

}  // namespace bnlab
