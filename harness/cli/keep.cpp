// bnlab keep: finished runs, in one file for each experiment.
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/ledger.hpp"
#include "harness/support/error.hpp"
#include "harness/transfer/keeping.hpp"

namespace bnlab {
namespace {

struct KeepRequest {
  std::vector<std::string> folders;

  void describe(Arguments& option) {
    option("FOLDER", folders,
           "Folders RESULTS/EXPERIMENT. Folders of runs are deleted, but for those with weights");
  }
};

int keep(const KeepRequest& request) {
  for (const std::string& each : request.folders) {
    const std::filesystem::path folder = experiment_folder(each);
    if (known_folders(folder.parent_path(), folder.filename().string()).empty())
      throw Error(Error::Kind::usage, each + ": no runs there; expected a folder RESULTS/EXPERIMENT");
    const KeepSummary kept = keep_runs(folder);
    for (const std::string& sentence : kept.left) std::cerr << sentence << "\n";
    std::cout << (std::filesystem::path(each) / kLedgerFile).string() << ": " << kept.runs << " runs, "
              << kept.added << " of them new\n";
  }
  return exit_code::kOk;
}

const Command keep_command(
    "keep", {Heading::results, 2},
    "Move finished runs from their folders into one file, RESULTS/EXPERIMENT/runs.jsonl",
    "  bnlab keep results/quickstart    reports read it like the folders", keep);

}  // namespace
}  // namespace bnlab
