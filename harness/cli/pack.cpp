// bnlab pack and bnlab check: results for somebody else, and whether they are as they were sent.
#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/printable.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/transfer/packing.hpp"

namespace bnlab {
namespace {

struct PackRequest {
  std::string folder, archive;
};

struct CheckRequest {
  std::string path;
};

void refuse_other_folders(const std::string& folder) {
  const ExperimentPath path = experiment_path(folder);
  if (run_folders(path.results, path.name).empty()) {
    throw Error(Error::Kind::usage, folder + ": no runs there; expected a folder RESULTS/EXPERIMENT");
  }
}

int pack(const PackRequest& request) {
  refuse_other_folders(request.folder);
  const Files files = files_to_pack(request.folder);
  write_atomically(request.archive, packed(files, experiment_path(request.folder).name));
  std::cerr << "packed " << files.size() << " files into " << request.archive
            << "; whoever gets it verifies it with: bnlab check " << request.archive << "\n";
  return exit_code::kOk;
}

int check(const CheckRequest& request) {
  const bool is_folder = std::filesystem::is_directory(request.path);
  if (is_folder) refuse_other_folders(request.path);
  Files files = is_folder ? files_to_pack(request.path) : unpacked(request.path);
  const std::filesystem::path manifest = std::filesystem::path(request.path) / kManifestFile;
  if (is_folder && std::filesystem::exists(manifest)) files[kManifestFile] = read_text(manifest);
  const Checked checked = check_files(files);
  for (const std::string& problem : checked.problems) std::cout << printable(problem) << "\n";
  std::cout << checked.files << " files listed, " << checked.records << " records, "
            << checked.problems.size() << " problems\n";
  return checked.problems.empty() ? exit_code::kOk : exit_code::kFailed;
}

}  // namespace

void add_pack(Program& program) {
  auto [command, request] = add_command(program, "pack", "Put results into one archive, for somebody else",
                                        "  bnlab pack results/quickstart quickstart.tar", pack);
  command.add_option("FOLDER", request.folder, "Folder RESULTS/EXPERIMENT")->required();
  command.add_option("ARCHIVE", request.archive, "The tar file to write")->required();
}

void add_check(Program& program) {
  auto [command, request] = add_command(
      program, "check", "Whether results are as they were packed, and records belong to their runs",
      "  bnlab check quickstart.tar\n"
      "  tar -xf quickstart.tar && bnlab check quickstart",
      check);
  command.add_option("PATH", request.path, "An archive, or the folder unpacked from one")->required();
}

}  // namespace bnlab
