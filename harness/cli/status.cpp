// bnlab status: how far experiments are.
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/records/status.hpp"

namespace bnlab {
namespace {

// With its spec, if there is one, so that missing runs are counted; else from the records alone.
ExperimentStatus status_of_named(const std::string& name, const std::string& results) {
  if (const std::string file = find_spec_if_any(name); !file.empty()) {
    return status_of(load_experiment(file), results);
  }
  if (std::filesystem::is_directory(experiment_folder(results, name))) {
    return status_of(name, results);
  }
  const std::string near = nearest(name, list_experiments(results));
  throw Error(Error::Kind::usage, name + ": neither a spec file nor an experiment in " + results +
                                      (near.empty() ? "" : "; did you mean " + near + "?"));
}

int status(const std::vector<std::string>& names, const std::string& results, bool json) {
  std::vector<ExperimentStatus> all;
  for (const std::string& name : names.empty() ? list_experiments(results) : names) {
    all.push_back(status_of_named(name, results));
  }
  if (json) {
    std::cout << status_json(all).dump(2) << "\n";
  } else if (all.empty()) {
    std::cerr << "no records in " << results << " yet; start with: bnlab run experiments/quickstart.json\n";
  } else {
    std::cout << status_text(all);
  }
  return exit_code::kOk;
}

}  // namespace

void add_status(Program& program) {
  CLI::App* command = add_command(program, "status", "How far experiments are",
                                  "  bnlab status\n"
                                  "  bnlab status quickstart tradeoff --json");
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto results = std::make_shared<std::string>("results");
  const auto json = std::make_shared<bool>(false);
  command->add_option("EXPERIMENT", *names, "Experiments or spec files; default: all in the results folder");
  add_results_option(*command, *results);
  command->add_flag("--json", *json, "As JSON");
  command->callback([&program, names, results, json] {
    program.action = [names, results, json] { return status(*names, *results, *json); };
  });
}

}  // namespace bnlab
