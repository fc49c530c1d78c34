// bnlab status: how far experiments are.
#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/report/status.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {
namespace {

struct StatusRequest {
  std::vector<std::string> names;
  std::string results = "results";
  bool json = false;
};

// With its spec, if there is one, so that missing runs are counted; else from the records alone.
ExperimentStatus status_of_named(const std::string& name, std::string results) {
  if (const auto experiment = load_if_any(name, results)) {
    return status_of(*experiment, results);
  }
  if (std::filesystem::is_directory(experiment_folder(results, name))) {
    return status_of(name, results);
  }
  const std::string meant = did_you_mean(name, list_experiments(results));
  throw Error(Error::Kind::usage, name + ": neither a spec file nor an experiment in " + results +
                                      (meant.empty() ? "; bnlab status shows those that are" : meant));
}

int status(const StatusRequest& request) {
  const std::vector<ExperimentStatus> all =
      mapped(request.names.empty() ? all_experiments(request.results) : request.names,
             [&](const std::string& name) { return status_of_named(name, request.results); });
  if (request.json) {
    std::cout << status_json(all).dump(2) << "\n";
  } else if (all.empty()) {
    std::cerr << "no records in " << request.results << " yet; start with: bnlab run quickstart\n";
  } else {
    std::cout << status_text(all);
  }
  return exit_code::kOk;
}

}  // namespace

void add_status(Program& program) {
  auto [command, request] = add_command(program, "status", "How far experiments are",
                                        "  bnlab status\n"
                                        "  bnlab status quickstart tradeoff --json",
                                        status);
  command.add_option("EXPERIMENT", request.names,
                     "Experiments or spec files; default: all in the results folder");
  add_results_option(command, request.results);
  add_json_flag(command, request.json);
}

}  // namespace bnlab
