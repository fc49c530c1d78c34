// bnlab status: how far experiments are.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/report/status.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

constexpr const char* kResults = "results";

struct StatusRequest {
  std::vector<std::string> names;
  std::string results = kResults;
  bool json = false;

  void describe(Arguments& option) {
    option("[EXPERIMENT]", names, "Experiments or spec files. Default: all in the results folder");
    describe_results(option, results);
    option("--json", json, "Print JSON");
  }
};

// With its spec, if there is one, so that missing runs are counted; else from the records alone.
ExperimentStatus status_of_named(const std::string& name, std::string results) {
  if (const auto experiment = load_if_any(name, results)) return status_of(*experiment, results);
  if (std::filesystem::is_directory(experiment_folder(results, name))) return status_of(name, results);
  const std::string meant = did_you_mean(name, list_experiments(results));
  throw Error(Error::Kind::usage, name + ": neither a spec file nor an experiment in " + results +
                                      (meant.empty() ? "; bnlab status shows those that are" : meant));
}

// Of an experiment of the results folder, by its records alone where its spec is damaged.
ExperimentStatus status_of_kept(const std::string& name, const std::string& results) {
  try {
    return status_of_named(name, results);
  } catch (const Error& error) {
    ExperimentStatus status = status_of(std::filesystem::path(name).filename().string(), results);
    status.problems.push_back(std::string(error.what()) + " (its runs are counted by their records alone)");
    return status;
  }
}

std::vector<ExperimentStatus> status_of_all(const std::string& results) {
  if (std::filesystem::exists(std::filesystem::path(results) / kSpecFile)) {
    throw Error(Error::Kind::usage, "--results " + results +
                                        ": the results of one experiment; expected the folder around it, or "
                                        "without --results: " +
                                        shell_command("bnlab status", {results}));
  }
  const bool is_first_time = results == kResults && !std::filesystem::exists(results);
  if (!is_first_time && !std::filesystem::is_directory(results)) {
    throw Error(Error::Kind::usage,
                "--results " + results + ": no runs there; expected the folder around those of experiments");
  }
  return mapped(all_experiments(results),
                [&](const std::string& name) { return status_of_kept(name, results); });
}

int status(const StatusRequest& request) {
  const std::vector<ExperimentStatus> all = request.names.empty()
                                                ? status_of_all(request.results)
                                                : mapped(request.names, [&](const std::string& name) {
                                                    return status_of_named(name, request.results);
                                                  });
  if (request.json)
    std::cout << status_json(all).dump(2) << "\n";
  else if (all.empty())
    std::cerr << "no records in " << request.results << " yet; start with: bnlab run quickstart\n";
  else
    std::cout << status_text(all);
  const bool is_whole =
      std::ranges::all_of(all, [](const ExperimentStatus& one) { return one.problems.empty(); });
  return is_whole ? exit_code::kOk : exit_code::kFailed;
}

const Command status_command("status", {Heading::experiments, 1},
                             "Count the runs that are done, failed, missing or stale",
                             "  bnlab status\n"
                             "  bnlab status quickstart tradeoff --json",
                             status);

}  // namespace
}  // namespace bnlab
