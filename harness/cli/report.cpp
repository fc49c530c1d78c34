// bnlab report: the table of an experiment over its seeds.
#include "harness/report/report.hpp"
#include "harness/probe/steps.hpp"

#include <filesystem>
#include <iostream>
#include <set>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/prediction/roofline.hpp"
#include "harness/probe/probe.hpp"
#include "harness/report/answers.hpp"
#include "harness/report/status.hpp"
#include "harness/shell.hpp"
#include "harness/store/records.hpp"

namespace bnlab {
namespace {

struct ReportRequest {
  std::string spec;
  std::vector<std::string> overrides;
  std::string results = "results";
  std::string format;
  std::string into;
  std::string baseline;
  std::string probe;
  std::string data_dir;
};

// What the factors of a run's products are rounded to.
std::string factors_of(const RunSpec& run, const std::string& device) {
  return run.tf32 && device == "cuda" ? "tf32" : name_of(run.precision);
}

// The step's operations are counted here, on the CPU: their numbers are the same on every device.
void add_roofline_of(const std::string& probe, const Experiment& experiment, const std::string& data_dir,
                     ExperimentReport& report) {
  const Json measured = read_probe(probe);
  const Roofline roofline = read_roofline(measured, std::filesystem::path(probe).filename().string());
  const std::string device = measured.at("fabric").at("device");
  prepare_to_measure(1);
  const auto shortest = [&](const RunSpec& run, const ReportRow& row) -> std::optional<double> {
    if (row.device != device || row.machines != std::set{roofline.machine}) return std::nullopt;
    std::cerr << "counting the operations of a step of " << run.id << std::endl;
    const RunSpec twin = runs_to_measure({run}, row.ranks).front();
    return roofline.seconds(read_profile(own_step(twin, row.ranks, Device::cpu, data_dir, 0)),
                            factors_of(run, device));
  };
  add_roofline(report, experiment, shortest, roofline.note());
}

std::string report_as(const std::string& format, const Experiment& experiment,
                      const std::vector<Record>& records, const ReportRequest& request) {
  if (format == "csv") {
    if (!request.probe.empty())
      throw Error(Error::Kind::usage, "--probe: CSV has no column of the roofline; use --format json");
    return report_csv(experiment, records);
  }
  ExperimentReport report =
      make_report(experiment, records, kept_declarations(request.results, experiment.name), request.baseline);
  report.marks_stale = request.into.empty();
  for (const std::string& problem : report.problems) std::cerr << "left out: " << problem << "\n";
  if (!request.probe.empty())
    by_probe(request.probe, [&] { add_roofline_of(request.probe, experiment, request.data_dir, report); });
  if (format == "json") return report_json(report).dump(2) + "\n";
  if (format == "html")
    return report_html(report, records, experiment_folder(request.results, experiment.name) / "figures");
  return format == "markdown" ? report_markdown(report) : report_text(report);
}

int report(const ReportRequest& asked) {
  ReportRequest request = asked;
  const Experiment experiment = load_asked(request.spec, request.results, request.overrides);
  std::vector<std::string> problems;
  const std::vector<Record> records = list_records(request.results, experiment.name, &problems);
  for (const std::string& problem : problems) std::cerr << "left out: " << problem << "\n";
  const std::filesystem::path folder = experiment_folder(request.results, experiment.name);
  const Json kept = std::filesystem::exists(folder / kSpecFile) ? read_json(folder / kSpecFile) : Json();
  const RunCounts counts = count_runs(experiment, records);
  if (counts.others > 0) {
    std::cerr << "note: " << counts.others << (counts.others == 1 ? " finished run" : " finished runs")
              << kOfOtherSpecs
              << (kept.is_null() || kept == experiment.asked
                      ? ""
                      : "; the spec that was run last: " + shell_command("bnlab report", {folder.string()}))
              << "\n";
  }
  const std::string format = !request.format.empty() ? request.format
                             : request.into.empty()  ? "text"
                                                     : "markdown";
  if (counts.outcomes.empty() && format == "text" && asked.probe.empty() && !experiment.tuning) {
    std::vector<std::string> words = {asked.spec};
    words.insert(words.end(), asked.overrides.begin(), asked.overrides.end());
    if (asked.results != ReportRequest().results) words.insert(words.end(), {"--results", asked.results});
    std::cout << "no runs yet; start them: " << shell_command("bnlab run", words) << "\n";
    return exit_code::kOk;
  }
  const std::string text = report_as(format, experiment, records, request);
  if (request.into.empty()) {
    std::cout << text;
  } else {
    const auto page = std::filesystem::absolute(request.into);
    const std::string answer =
        answer_paragraphs(experiment_folder(request.results, experiment.name), page.parent_path());
    replace_between_markers(request.into, experiment.name, answer + text);
    std::cerr << "wrote the table " << experiment.name << " into " << request.into << "\n";
  }
  return exit_code::kOk;
}

}  // namespace

void add_report(Program& program) {
  auto [command, request] =
      add_command(program, "report", "Print the table of an experiment over its seeds",
                  "  bnlab report quickstart\n"
                  "  bnlab report tradeoff --format html > tradeoff.html\n"
                  "  bnlab report tradeoff --format csv > tradeoff.csv\n"
                  "  bnlab report tradeoff steps=10          of bnlab run tradeoff steps=10\n"
                  "  bnlab report tradeoff --baseline averaged\n"
                  "  bnlab report tradeoff --probe probe.json\n"
                  "  bnlab report tradeoff --into results/tradeoff/README.md",
                  report);
  add_spec(command, request.spec);
  add_overrides(command, request.overrides);
  command
      .add_option(
          "--format", request.format,
          "Format: text, markdown, html (one page with figures and environments), csv (one row per run), or "
          "json with the value of every seed, from which figures are drawn")
      ->type_name("FORMAT")
      ->check(one_of({"text", "markdown", "html", "csv", "json"}));
  command
      .add_option("--into", request.into,
                  "Put the table into a file, between the lines <!-- table:NAME --> and <!-- end -->, below "
                  "the answer of the experiment's findings.md, where there is one")
      ->type_name("FILE");
  command
      .add_option(
          "--baseline", request.baseline,
          "Strategy (its label) that costs are given relative to. Default: the first that exchanges nothing")
      ->type_name("LABEL");
  command
      .add_option(
          "--probe", request.probe,
          "Add a column, the shortest that the machine could make a step (its roofline) as a share of what "
          "it took, by a file of bnlab probe --out of the machine that made the runs")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  add_data_option(command, request.data_dir);
  add_results_option(command, request.results);
}

}  // namespace bnlab
