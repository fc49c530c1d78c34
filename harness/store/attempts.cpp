#include "harness/store/attempts.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "harness/store/ledger.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/this_process.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClaim = ".claim.";
constexpr const char* kAttempt = ".attempt.";

fs::path beside(const fs::path& folder, const std::string& ending) {
  return folder.parent_path() / ("." + placement_of(folder) + ending);
}

// The number behind `kind` in a name; nothing where there is none that an attempt can have.
std::optional<int> number_in(const fs::path& path, const std::string& kind) {
  const std::string name = path.filename().string();
  const size_t at = name.find(kind);
  if (at == std::string::npos) return std::nullopt;
  int number = 0;
  const auto [end, problem] =
      std::from_chars(name.data() + at + kind.size(), name.data() + name.size(), number);
  const bool is_whole = end == name.data() + name.size() || *end == '.';
  return problem == std::errc() && is_whole && number >= 0 && number <= kLastAttempt ? std::optional(number)
                                                                                     : std::nullopt;
}

std::vector<NumberedFile> all_of(const fs::path& folder, const char* kind) {
  std::vector<NumberedFile> found;
  const std::string start = beside(folder, kind).filename().string();
  if (!fs::exists(folder.parent_path())) return found;
  for (const auto& entry : fs::directory_iterator(folder.parent_path())) {
    const std::optional<int> number = number_in(entry.path(), kind);
    if (number && entry.path().filename().string().starts_with(start))
      found.push_back({*number, entry.path()});
  }
  std::ranges::sort(found, {}, &NumberedFile::number);
  return found;
}

}  // namespace

int attempts_without_end(const fs::path& folder) {
  return static_cast<int>(std::ranges::count_if(
      claims_of(folder), [](const NumberedFile& claim) { return is_counted(claim.path); }));
}

// Its last sign of life was long before there was bnlab.
void count_attempt(const fs::path& claim) {
  const std::array<timespec, 2> long_ago{};
  ::utimensat(AT_FDCWD, claim.c_str(), long_ago.data(), 0);
}

bool is_counted(const fs::path& claim) {
  struct stat file{};
  return ::stat(claim.c_str(), &file) == 0 && file.st_mtim.tv_sec == 0;
}

void set_attempts(const fs::path& folder, int attempts) {
  const int last_forgotten = number_in(folder, kAttempt).value_or(0) - attempts;
  for (const NumberedFile& claim : claims_of(folder)) {
    std::error_code gone;
    if (claim.number <= last_forgotten) fs::remove(claim.path, gone);
  }
}

std::vector<NumberedFile> claims_of(const fs::path& folder) {
  return all_of(folder, kClaim);
}

std::vector<NumberedFile> attempt_folders_of(const fs::path& folder) {
  return all_of(folder, kAttempt);
}

fs::path claim_file(const fs::path& run_folder, int number) {
  return beside(run_folder, kClaim + std::to_string(number));
}

fs::path attempt_folder(const fs::path& run_folder, int number) {
  return beside(run_folder, kAttempt + std::to_string(number) + "." + this_process());
}

std::vector<fs::path> begun_folders(const fs::path& results, const std::string& experiment) {
  std::vector<fs::path> found = run_folders(results, experiment);
  std::error_code none;
  for (const auto& run : fs::directory_iterator(experiment_folder(results, experiment), none)) {
    std::error_code no_folder;
    for (const auto& entry : fs::directory_iterator(run.path(), no_folder))
      if (placement_of(entry.path()) != entry.path().filename()) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> list_experiments(const fs::path& results) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(results, none)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name[0] == '.') continue;
    // In another results folder below this one, such as results/here, experiments stand where runs would.
    const auto is_of_run = [](const fs::path& folder) {
      return !fs::exists(folder.parent_path() / kSpecFile);
    };
    if (fs::exists(entry.path() / kLedgerFile) ||
        std::ranges::any_of(begun_folders(results, name), is_of_run)) {
      names.push_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

std::vector<fs::path> claimed_folders(const fs::path& results, const std::string& experiment) {
  std::set<fs::path> found;
  std::error_code none;
  for (const auto& run : fs::directory_iterator(experiment_folder(results, experiment), none)) {
    std::error_code no_folder;
    for (const auto& entry : fs::directory_iterator(run.path(), no_folder)) {
      const std::string name = entry.path().filename().string();
      const size_t end = name.find(kClaim);
      if (name.starts_with('.') && end != std::string::npos)
        found.insert(run.path() / name.substr(1, end - 1));
    }
  }
  return {found.begin(), found.end()};
}

std::string placement_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t end = name.find(kAttempt);
  return end == std::string::npos ? name : name.substr(1, end - 1);
}

}  // namespace bnlab
