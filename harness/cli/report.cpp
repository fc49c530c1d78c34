// bnlab report: the table of an experiment over its seeds.
#include "harness/report/report.hpp"
#include "harness/probe/steps.hpp"

#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/probe_file.hpp"
#include "harness/cli/program.hpp"
#include "harness/prediction/roofline.hpp"
#include "harness/probe/probe.hpp"
#include "harness/report/status.hpp"
#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

struct ReportRequest {
  std::string spec;
  std::vector<std::string> overrides;  // as well as further specs, which have no "="
  std::string results = "results";
  std::string format = "text";
  std::string into;
  std::string baseline;
  std::string probe;
  std::string data_dir;
  std::string out;

  void describe(Arguments& option) {
    option("SPEC", spec, kSpecHelp);
    option("[KEY=VALUE]", overrides,
           "Keys of the spec to set otherwise, such as steps=10; words without = are further specs");
    option("--format FORMAT", format,
           "Format: text, markdown, html (one page with figures and environments), csv (one row per run), or "
           "json with the value of every seed, from which figures are drawn")
        .one_of({"text", "markdown", "html", "csv", "json"});
    option("--into FILE", into,
           "Put the main table into a file, between the lines <!-- summary:NAME --> and <!-- end -->, and "
           "all tables with their notes between <!-- table:NAME --> and <!-- end -->. A folder: into its "
           "NAME/README.md")
        .not_with({"--format", "--out"});
    option("--out FILE", out,
           "File for what is printed otherwise. A folder: with --format each report as its NAME.json");
    option(
        "--baseline LABEL", baseline,
        "Strategy (its label) that costs are given relative to. Default: the first that exchanges nothing");
    option("--probe FILE", probe,
           "Add a column, the shortest that the machine could make a step (its roofline) as a share of what "
           "it took, by a file of bnlab probe --out of the machine that made the runs");
    describe_data(option, data_dir);
    describe_results(option, results);
  }
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
    return roofline.seconds(read_profile(counted_step(twin, row.ranks, data_dir, true)),
                            factors_of(run, device));
  };
  add_roofline(report, experiment, shortest, roofline.note());
}

ExperimentReport report_of(const Experiment& experiment, const std::vector<Record>& records,
                           const ReportRequest& request) {
  ExperimentReport report =
      make_report(experiment, records, kept_declarations(request.results, experiment.name), request.baseline);
  report.marks_stale = request.into.empty();
  report.page = read_result_page(experiment_folder(request.results, experiment.name));
  for (const std::string& problem : report.problems) std::cerr << "left out: " << problem << "\n";
  if (!request.probe.empty())
    by_probe(request.probe, [&] { add_roofline_of(request.probe, experiment, request.data_dir, report); });
  return report;
}

void tell_other_runs(const ReportRequest& request, const Experiment& experiment, const RunCounts& counts) {
  if (counts.others == 0) return;
  const std::filesystem::path folder = experiment_folder(request.results, experiment.name);
  const Json kept = std::filesystem::exists(folder / kSpecFile) ? read_json(folder / kSpecFile) : Json();
  std::cerr << "note: " << counts.others << (counts.others == 1 ? " finished run" : " finished runs")
            << kOfOtherSpecs
            << (kept.is_null() || kept == experiment.asked
                    ? ""
                    : "; the spec that was run last: " + shell_command("bnlab report", {folder.string()}))
            << "\n";
}

std::string no_runs_yet(const ReportRequest& asked, const Experiment& experiment) {
  std::vector<std::string> words = {asked.spec};
  words.insert(words.end(), asked.overrides.begin(), asked.overrides.end());
  if (asked.results != ReportRequest().results) words.insert(words.end(), {"--results", asked.results});
  return "no runs yet; start them: " + shell_command("bnlab run", words) + "\n" +
         (experiment.tuning ? wrapped("Not tuned yet: " + experiment.tuning->sentence() + ".") : "");
}

std::string text_of(const ExperimentReport& report, const std::vector<Record>& records,
                    const std::filesystem::path& figures, const std::string& format) {
  if (format == "json") return report_json(report).dump(2) + "\n";
  if (format == "html") return report_html(report, records, figures);
  return format == "markdown" ? report_markdown(report) : report_text(report);
}

// Prints the report of one spec, or puts it where --into or --out says.
void report_one(const ReportRequest& asked) {
  ReportRequest request = asked;
  const Experiment experiment = load_asked(request.spec, request.results, request.overrides);
  std::vector<std::string> problems;
  const std::vector<Record> records = list_records(request.results, experiment.name, &problems);
  for (const std::string& problem : problems) std::cerr << "left out: " << problem << "\n";
  const RunCounts counts = count_runs(experiment, records);
  tell_other_runs(request, experiment, counts);
  if (!request.into.empty()) {
    const std::filesystem::path into = request.into;
    const std::filesystem::path page =
        std::filesystem::is_directory(into) ? into / experiment.name / "README.md" : into;
    const ExperimentReport made = report_of(experiment, records, request);
    replace_between_markers(page, {{"summary:" + experiment.name, summary_markdown(made)},
                                   {"table:" + experiment.name, tables_markdown(made)}});
    std::cerr << "wrote the tables of " << experiment.name << " into " << page.string() << "\n";
    return;
  }
  const bool is_settled = experiment.tuning && experiment.tuning->is_settled();
  std::string text;
  if (request.format == "csv")
    text = report_csv(experiment, records);
  else if (counts.outcomes.empty() && request.format == "text" && request.probe.empty() && !is_settled)
    text = no_runs_yet(asked, experiment);
  else
    text = text_of(report_of(experiment, records, request), records,
                   experiment_folder(request.results, experiment.name) / "figures", request.format);
  if (!std::filesystem::is_directory(request.out)) {
    std::cout << text;
    return;
  }
  const std::string suffix = request.format == "text"       ? "txt"
                             : request.format == "markdown" ? "md"
                                                            : request.format;
  write_atomically(std::filesystem::path(request.out) / (experiment.name + "." + suffix), text);
}

int report(const ReportRequest& asked) {
  ReportRequest request = asked;
  std::vector<std::string> specs = {asked.spec};
  std::erase_if(request.overrides, [&](const std::string& word) {
    const bool is_spec = word.find('=') == std::string::npos;
    if (is_spec) specs.push_back(word);
    return is_spec;
  });
  if (request.format == "csv" && !request.probe.empty())
    throw Error(Error::Kind::usage, "--probe: CSV has no column of the roofline; use --format json");
  const bool is_whole = request.format == "json" || request.format == "csv" || request.format == "html";
  if (specs.size() > 1 && is_whole && !std::filesystem::is_directory(request.out))
    throw Error(
        Error::Kind::usage,
        "--format " + request.format + " of several specs: expected --out FOLDER, where each becomes a file");
  for (const std::string& spec : specs) {
    if (spec != specs.front() && request.into.empty()) std::cout << "\n";
    request.spec = spec;
    report_one(request);
  }
  return exit_code::kOk;
}

// What it prints goes to the file of --out.
int report_to_file(const ReportRequest& asked) {
  if (asked.out.empty() || std::filesystem::is_directory(asked.out)) return report(asked);
  std::ostringstream text;
  std::streambuf* const screen = std::cout.rdbuf(text.rdbuf());
  const std::shared_ptr<void> at_the_end(nullptr, [screen](void*) { std::cout.rdbuf(screen); });
  const int code = report(asked);
  write_atomically(asked.out, text.str());
  std::cerr << "wrote " << asked.out << "\n";
  return code;
}

const Command report_command("report", {Heading::start_here, 3},
                             "Print the answer and the tables of an experiment over its seeds",
                             "  bnlab report quickstart\n"
                             "  bnlab report tradeoff --format html --out tradeoff.html\n"
                             "  bnlab report tradeoff --format csv > tradeoff.csv\n"
                             "  bnlab report tradeoff steps=10          of bnlab run tradeoff steps=10\n"
                             "  bnlab report tradeoff --baseline averaged\n"
                             "  bnlab report tradeoff --probe probe.json\n"
                             "  bnlab report tradeoff --into results/tradeoff/README.md\n"
                             "  bnlab report tradeoff memory --format json --out /tmp",
                             report_to_file);

}  // namespace
}  // namespace bnlab
