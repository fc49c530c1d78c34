// bnlab pack and bnlab check: results for somebody else, and whether they are as they were sent. Of what
// scripts/gpu_check.sh leaves, check also tells machine, revision, verdicts and stale records.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/ledger.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/transfer/gpu_check_page.hpp"
#include "harness/transfer/packing.hpp"

namespace bnlab {
namespace {

struct PackRequest {
  std::string folder, archive;

  void describe(Arguments& option) {
    option("FOLDER", folder, "Folder RESULTS/EXPERIMENT");
    option("ARCHIVE", archive, "The tar file to write");
  }
};

struct CheckRequest {
  std::string path;

  void describe(Arguments& option) {
    option("PATH", path, "An archive of bnlab pack or scripts/gpu_check.sh, or the folder unpacked from one");
  }
};

void refuse_other_folders(const std::string& folder) {
  if (std::filesystem::exists(std::filesystem::path(folder) / kGpuCheckFile)) return;
  const ExperimentPath path = experiment_path(folder);
  if (known_folders(path.results, path.name).empty()) {
    throw Error(
        Error::Kind::usage,
        folder + ": no runs there; expected a folder RESULTS/EXPERIMENT, or one of scripts/gpu_check.sh");
  }
}

// The archive is not compressed, whatever its name says.
void refuse_compressed_names(const std::string& archive) {
  constexpr std::array<std::string_view, 6> kEndings = {".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip"};
  const std::string ending = std::filesystem::path(archive).extension().string();
  if (std::ranges::count(kEndings, ending) > 0) {
    throw Error(Error::Kind::usage, archive +
                                        ": expected a name that ends in .tar: the archive is not compressed; "
                                        "gzip, xz or zstd do so afterwards");
  }
}

int pack(const PackRequest& request) {
  refuse_compressed_names(request.archive);
  refuse_other_folders(request.folder);
  const Files files = files_to_pack(request.folder);
  write_atomically(request.archive, packed(files, experiment_path(request.folder).name));
  std::cerr << "packed " << files.size() << " files into " << request.archive
            << "; whoever gets it verifies it with: " << shell_command("bnlab check", {request.archive})
            << "\n";
  return exit_code::kOk;
}

int check(const CheckRequest& request) {
  if (!std::filesystem::exists(request.path))
    throw Error(Error::Kind::usage, request.path + ": no such archive or folder");
  const bool is_folder = std::filesystem::is_directory(request.path);
  if (is_folder) refuse_other_folders(request.path);
  Files files = is_folder ? files_to_pack(request.path) : unpacked(request.path);
  const std::filesystem::path manifest = std::filesystem::path(request.path) / kManifestFile;
  if (is_folder && std::filesystem::exists(manifest)) files[kManifestFile] = read_text(manifest);
  const Checked checked = check_files(files);
  if (holds_gpu_check(files)) {
    std::cout << gpu_check_text(gpu_check_page(files, request.path));
    for (const auto& [reason, count] : checked.stale)
      std::cout << count << " records stale: " << reason << "\n";
  }
  for (const std::string& problem : checked.problems) std::cout << problem << "\n";
  std::cout << checked.files << " files listed, " << checked.records << " records, "
            << checked.problems.size() << " problems\n";
  return checked.problems.empty() ? exit_code::kOk : exit_code::kFailed;
}

const Command pack_command("pack", {Heading::results, 3}, "Put results into one archive, for somebody else",
                           "  bnlab pack results/quickstart quickstart.tar", pack);
const Command check_command("check", {Heading::results, 4},
                            "Check that results are as they were packed, and records belong to their runs",
                            "  bnlab check quickstart.tar\n"
                            "  tar -xf quickstart.tar && bnlab check quickstart\n"
                            "  bnlab check results/gpu_check/nvidia-h100-x1-0123abcd-0123456789ab.tar",
                            check);

}  // namespace
}  // namespace bnlab
