// bnlab pack and bnlab check: results for somebody else, and whether they are as they were sent. Of what
// scripts/gpu_check.sh leaves, check also shows the page of verdicts, and counts stale records.
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/ledger.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/transfer/packing.hpp"

namespace bnlab {
namespace {

struct PackRequest {
  std::string folder, into;

  void describe(Arguments& option) {
    option("FOLDER", folder, "Folder RESULTS/EXPERIMENT");
    option("INTO", into, "The folder to make, for tar to send");
  }
};

struct CheckRequest {
  std::string path;

  void describe(Arguments& option) { option("PATH", path, "A folder of bnlab pack or scripts/gpu_check.sh"); }
};

void refuse_other_folders(const std::string& folder) {
  const ExperimentPath path = experiment_path(folder);
  if (!holds_gpu_check(folder) && known_folders(path.results, path.name).empty()) {
    throw Error(
        Error::Kind::usage,
        folder + ": no runs there; expected a folder RESULTS/EXPERIMENT, or one of scripts/gpu_check.sh");
  }
}

// The command by which tar makes an archive of the folder `into`.
std::string archived(const ExperimentPath& into) {
  return shell_command("tar", {"-C", into.results.string(), "-czf",
                               (into.results / into.name).string() + ".tar.gz", into.name});
}

// Who writes the name of an archive wants one.
void refuse_archives(const std::string& into) {
  for (const char* ending : {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip"})
    if (into.ends_with(ending)) {
      const std::string folder = into.substr(0, into.size() - std::string(ending).size());
      throw Error(Error::Kind::usage, into + ": expected the name of a folder, such as " + folder +
                                          "; an archive of it makes: " + archived(experiment_path(folder)));
    }
}

int pack(const PackRequest& request) {
  refuse_archives(request.into);
  refuse_other_folders(request.folder);
  const ExperimentPath into = experiment_path(request.into);
  const Packed packed = pack_results(experiment_folder(request.folder), into.results / into.name);
  for (const std::string& sentence : packed.kept.left) std::cerr << sentence << "\n";
  std::cerr << "packed " << packed.files << " files, with " << packed.kept.runs << " runs in " << kLedgerFile
            << ", into " << request.into << "; an archive of it makes: " << archived(into)
            << "\nwhoever gets it verifies it with: " << shell_command("bnlab check", {request.into}) << "\n";
  return exit_code::kOk;
}

int check(const CheckRequest& request) {
  if (!std::filesystem::exists(request.path))
    throw Error(Error::Kind::usage, request.path + ": no such folder");
  if (!std::filesystem::is_directory(request.path)) {
    throw Error(Error::Kind::usage, request.path + ": expected a folder; an archive becomes one with: " +
                                        shell_command("tar -xf", {request.path}));
  }
  if (!std::filesystem::exists(std::filesystem::path(request.path) / kManifestFile))
    refuse_other_folders(request.path);
  const Checked checked = check_results(experiment_folder(request.path));
  if (holds_gpu_check(request.path)) {
    std::cout << gpu_check_text(request.path);
    for (const auto& [reason, count] : checked.stale)
      std::cout << count << " records stale: " << reason << "\n";
  }
  for (const std::string& problem : checked.problems) std::cout << problem << "\n";
  std::cout << checked.files << " files listed, " << checked.records << " records, "
            << checked.problems.size() << " problems\n";
  return checked.problems.empty() ? exit_code::kOk : exit_code::kFailed;
}

const Command pack_command("pack", {Heading::results, 3}, "Put results into one folder, for somebody else",
                           "  bnlab pack results/quickstart sent && tar -czf sent.tar.gz sent", pack);
const Command check_command("check", {Heading::results, 4},
                            "Check that results are as they were packed, and records belong to their runs",
                            "  tar -xf sent.tar.gz && bnlab check sent\n"
                            "  bnlab check results/gpu_check/nvidia-h100-x1-0123abcd-0123456789ab",
                            check);

}  // namespace
}  // namespace bnlab
