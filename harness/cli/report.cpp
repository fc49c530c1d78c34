// bnlab report: the table of an experiment over its seeds.
#include "harness/records/report.hpp"

#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

struct ReportRequest {
  std::string spec;
  std::string results = "results";
  std::string format;
  std::string into;
  std::string baseline;
};

int report(const ReportRequest& request) {
  const Experiment experiment = load_experiment(find_spec(request.spec));
  std::vector<std::string> problems;
  const ExperimentReport table =
      make_report(experiment, list_records(request.results, experiment.name, &problems), request.baseline);
  for (const std::string& problem : problems) {
    std::cerr << "left out: " << problem << "\n";
  }
  const std::string format = !request.format.empty() ? request.format
                             : request.into.empty()  ? "text"
                                                     : "markdown";
  const std::string text = format == "json"       ? report_json(table).dump(2) + "\n"
                           : format == "markdown" ? report_markdown(table)
                                                  : report_text(table);
  if (request.into.empty()) {
    std::cout << text;
  } else {
    replace_between_markers(request.into, experiment.name, text);
    std::cerr << "wrote the table " << experiment.name << " into " << request.into << "\n";
  }
  return exit_code::kOk;
}

}  // namespace

void add_report(Program& program) {
  auto [command, request] =
      add_command(program, "report", "The table of an experiment over its seeds",
                  "  bnlab report quickstart\n"
                  "  bnlab report experiments/tradeoff.json --format json\n"
                  "  bnlab report tradeoff --baseline per_tower --into results/tradeoff/README.md",
                  report);
  add_spec(command, request.spec);
  command
      .add_option("--format", request.format,
                  "text, markdown, or json with the value of every seed, from which figures are drawn")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "markdown", "json"}));
  command
      .add_option("--into", request.into, "File with a line <!-- table:NAME -->: the table is put below it")
      ->type_name("FILE");
  command
      .add_option("--baseline", request.baseline,
                  "Strategy (its label) that throughputs are given relative to as well")
      ->type_name("LABEL");
  add_results_option(command, request.results);
}

}  // namespace bnlab
