// bnlab compare: two folders of results side by side.
#include <iostream>
#include <optional>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/program.hpp"
#include "harness/report/comparison.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

struct CompareRequest {
  std::string a, b;
  std::optional<Change> only;
  std::string format = "text";
  double tolerance_percent = 1;

  void describe(Arguments& option) {
    option("A", a, "Folder RESULTS/EXPERIMENT");
    option("B", b, "Another one, which is compared with the first");
    option("--only KIND", only, "Show rows of this kind alone: better, worse, equal or undecided");
    option("--tolerance PERCENT", tolerance_percent,
           "Per cent by which speed and memory may differ and still count as equal")
        .from(0, 100);
    option("--format FORMAT", format, "Format: text or json").one_of({"text", "json"});
  }
};

// The finished records of RESULTS/EXPERIMENT.
std::vector<Record> records_in(const std::string& text) {
  const ExperimentPath experiment = experiment_path(text);
  std::vector<std::string> problems;
  std::vector<Record> records = list_records(experiment.results, experiment.name, &problems);
  for (const std::string& problem : problems) std::cerr << "left out: " << problem << "\n";
  if (records.empty()) {
    throw Error(
        Error::Kind::usage,
        text + ": no records there; expected a folder RESULTS/EXPERIMENT, such as results/quickstart");
  }
  return records;
}

int compare_folders(const CompareRequest& request) {
  const std::vector<Record> a = records_in(request.a), b = records_in(request.b);
  const Comparison comparison = compare(a, b, request.tolerance_percent / 100);
  if (comparison.pairs == 0) {
    throw Error(Error::Kind::usage,
                request.a + " and " + request.b +
                    ": no run of one has a partner in the other: same spec but for keys in "
                    "which the folders differ as a whole, same seed and placement");
  }
  std::cout << (request.format == "json" ? comparison_json(comparison, request.only).dump(2) + "\n"
                                         : "A: " + request.a + "\nB: " + request.b + "\n" +
                                               comparison_text(comparison, request.only));
  const std::optional<int> regressions = comparison.regressions();
  return !regressions ? exit_code::kUsage : *regressions > 0 ? exit_code::kFailed : exit_code::kOk;
}

const Command compare_command("compare", {Heading::experiments, 4},
                              "Compare two folders of results, paired run by run; 1 if B got worse",
                              "  bnlab compare results/quickstart /tmp/colleague/quickstart\n"
                              "  bnlab compare before/tradeoff after/tradeoff --only worse",
                              compare_folders);

}  // namespace
}  // namespace bnlab
