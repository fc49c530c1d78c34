#include "harness/transfer/packing.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sstream>

#include "harness/store/ledger.hpp"
#include "harness/store/record.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_file.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// The files that are packed of a folder, and those that its manifest lists, by path below it.
std::vector<std::string> files_to_pack(const fs::path& folder) {
  const bool of_gpu_check = holds_gpu_check(folder);
  const auto is_packed = [&](const fs::path& file) {
    const std::string name = file.filename().string(), ending = file.extension().string();
    const bool is_chatter =
        name == "job.json" || name.ends_with(".report.json") || ending == ".log" || ending == ".tmp";
    return name != kManifestFile && ending != ".safetensors" && (of_gpu_check || !is_chatter);
  };
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry)
    if (entry->path().filename().string().front() == '.')  // a run under way, or a file half written
      entry.disable_recursion_pending();
    else if (entry->is_regular_file() && !entry->is_symlink() && is_packed(entry->path()))
      files.push_back(entry->path().lexically_relative(folder).generic_string());
  std::ranges::sort(files);
  return files;
}

// What coreutils' sha256sum, started without a shell, prints of some files of a folder. Throws Error
// (environment) with what it says where it fails.
std::string sha256sum(const fs::path& folder, std::vector<std::string> words) {
  words.insert(words.begin(), {"sha256sum", "--"});
  std::vector<char*> arguments = mapped(words, [](std::string& word) { return word.data(); });
  arguments.push_back(nullptr);
  const int output = ::memfd_create("sha256sum", MFD_CLOEXEC);
  int problem = output < 0 ? errno : 0, status = 0;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int printed : {STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_adddup2(&actions, output, printed);
  pid_t child = 0;
  if (problem == 0)
    problem = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (problem == 0) ::waitpid(child, &status, 0);
  const std::string text = problem == 0 ? read_text("/proc/self/fd/" + std::to_string(output)) : "";
  ::close(output);
  if (problem != 0)
    throw Error(Error::Kind::environment, std::string("cannot start sha256sum: ") + std::strerror(problem));
  if (status != 0) throw Error(Error::Kind::environment, text.substr(0, text.find('\n')));
  return text;
}

// The manifest of some files of a folder.
std::string manifest_of(const fs::path& folder, const std::vector<std::string>& files) {
  constexpr size_t kAtOnce = 1000;  // far fewer than a command line may have
  std::string lines;
  for (size_t at = 0; at < files.size(); at += kAtOnce) {
    const auto begin = files.begin() + static_cast<ptrdiff_t>(at);
    lines += sha256sum(folder, {begin, begin + static_cast<ptrdiff_t>(std::min(kAtOnce, files.size() - at))});
  }
  return lines;
}

// Checksums by path, of lines "DIGITS  PATH".
std::map<std::string, std::string> checksums_in(const std::string& manifest) {
  std::map<std::string, std::string> checksums;
  std::istringstream lines(manifest);
  for (std::string digits, path; lines >> digits && std::getline(lines, path);)
    checksums[path.size() > 2 ? path.substr(2) : digits] = digits;
  return checksums;
}

void check_manifest(const fs::path& folder, const std::vector<std::string>& files, Checked& checked) {
  if (!fs::exists(folder / kManifestFile)) {
    checked.problems.push_back(std::string("there is no ") + kManifestFile + "; bnlab pack writes one");
    return;
  }
  const auto listed = checksums_in(read_text(folder / kManifestFile));
  const auto there = checksums_in(manifest_of(folder, files));
  checked.files = static_cast<int>(listed.size());
  for (const auto& [path, digits] : listed) {
    const auto file = there.find(path);
    if (file == there.end())
      checked.problems.push_back(path + " is missing");
    else if (file->second != digits)
      checked.problems.push_back(path + " was changed");
  }
  for (const auto& [path, digits] : there)
    if (!listed.contains(path)) checked.problems.push_back(path + " was added");
}

// A record that this program understands must have the run id of its own spec. One that lies in a folder and
// in the ledger counts once: `seen` has the places of those before.
void check_record(const std::string& path, const std::string& content, std::set<std::string>& seen,
                  Checked& checked) {
  try {
    const Record record(parse_json(content, path), path);
    if (seen.insert(record.run_id() + "/" + record.placement()).second) {
      ++checked.records;
      if (const std::string reason = record.why_stale(); !reason.empty()) ++checked.stale[reason];
    }
    std::string id;
    try {
      id = read_resolved(record.at("spec")).id;
    } catch (const Error&) {
      return;  // another version has other keys
    }
    if (id != record.run_id()) checked.problems.push_back(path + ": its spec is that of the run " + id);
  } catch (const Error& error) {
    checked.problems.push_back(error.what());
  }
}

}  // namespace

bool holds_gpu_check(const fs::path& folder) {
  return fs::exists(folder / "check.json");
}

std::string gpu_check_text(const fs::path& folder) {
  constexpr size_t kVerdictAt = 11;  // on each line, behind the name of the part
  std::istringstream lines(read_text(folder / "table.txt"));
  std::string text;
  int fine = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.size() > kVerdictAt && line.compare(kVerdictAt, 3, "ok ") == 0)
      ++fine;
    else
      text += line + "\n";
  return text + std::to_string(fine) + " verdicts ok\n";
}

Packed pack_results(const fs::path& folder, const fs::path& into) {
  if (fs::exists(into))
    throw Error(Error::Kind::usage, into.string() + " is there already; name a new folder");
  if (const auto ledger = ledger_of(folder); !ledger->problems.empty())
    throw Error(Error::Kind::data, ledger->problems.front());
  const std::vector<std::string> files = files_to_pack(folder);
  try {
    for (const std::string& file : files) {
      fs::create_directories((into / file).parent_path());
      copy_synced(folder / file, into / file);
    }
    const KeepSummary kept = keep_runs(into);
    const std::vector<std::string> packed = files_to_pack(into);
    write_atomically(into / kManifestFile, manifest_of(into, packed));
    return {static_cast<int>(packed.size()), kept};
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove_all(into, ignored);
    throw;
  }
}

Checked check_results(const fs::path& folder) {
  Checked checked;
  const std::vector<std::string> files = files_to_pack(folder);
  check_manifest(folder, files, checked);
  std::set<std::string> seen;
  for (const std::string& path : files) {
    const std::string name = fs::path(path).filename().string();
    if (name == kRecordFile) check_record(path, read_text(folder / path), seen, checked);
    if (name != kLedgerFile) continue;
    std::istringstream lines(read_text(folder / path));
    size_t number = 0;
    for (std::string line; std::getline(lines, line);)
      check_record(path + ":" + std::to_string(++number), line, seen, checked);
  }
  return checked;
}

}  // namespace bnlab
