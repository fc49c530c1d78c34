#include "harness/records/attempts.hpp"

#include <fstream>
#include <string>

#include "harness/records/run_folder.hpp"

namespace bnlab {
namespace {

std::filesystem::path file_of(const std::filesystem::path& run_folder) {
  return run_folder.parent_path() / ("." + run_folder.filename().string() + ".attempts");
}

}  // namespace

int attempts_without_end(const std::filesystem::path& run_folder) {
  int attempts = 0;
  std::ifstream(file_of(run_folder)) >> attempts;
  return attempts;
}

void set_attempts(const std::filesystem::path& run_folder, int attempts) {
  if (attempts == 0) {
    std::filesystem::remove(file_of(run_folder));
  } else {
    write_atomically(file_of(run_folder), std::to_string(attempts) + "\n");
  }
}

}  // namespace bnlab
