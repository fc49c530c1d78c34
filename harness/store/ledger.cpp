#include "harness/store/ledger.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <set>
#include <sstream>
#include <tuple>

#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

using Stamp = std::tuple<ino_t, off_t, time_t, long>;  // another one: the file has changed

Stamp stamp_of(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

// A name that cannot lead out of the experiment's folder.
std::string folder_name(const Json& record, const char* path, const std::string& line) {
  const Json* const name = find(record, path);
  const std::string text = name != nullptr && name->is_string() ? name->get<std::string>() : "";
  if (text.empty() || text.size() > NAME_MAX || text.front() == '.' || text.find('/') != std::string::npos)
    throw Error(Error::Kind::data, line + ": " + path + ": expected the name of a folder");
  return text;
}

void add_line(const std::string& text, const std::string& line, RunLedger& ledger) {
  KeptRun run{parse_json(text, line), Json::array(), line};
  const fs::path key =
      fs::path(folder_name(run.record, "run_id", line)) / folder_name(run.record, "placement.name", line);
  if (run.record.contains("log")) {
    run.log = std::move(run.record["log"]);
    run.record.erase("log");
  }
  if (!ledger.runs.try_emplace(key, std::move(run)).second)
    throw Error(Error::Kind::data, line + " has " + key.string() + " a second time; delete one of the lines");
}

std::shared_ptr<const RunLedger> read_ledger(const fs::path& file) {
  const auto ledger = std::make_shared<RunLedger>();
  try {
    std::istringstream lines(read_text(file));
    size_t number = 0;
    for (std::string text; std::getline(lines, text);) {
      ++number;
      try {
        add_line(text, file.string() + ":" + std::to_string(number), *ledger);
      } catch (const Error& error) {
        ledger->problems.emplace_back(error.what());
      }
    }
  } catch (const Error& error) {
    ledger->problems.emplace_back(error.what());
  }
  return ledger;
}

}  // namespace

std::shared_ptr<const RunLedger> ledger_of(const fs::path& experiment_folder) {
  struct LastRead {
    Stamp stamp;
    std::shared_ptr<const RunLedger> ledger = std::make_shared<RunLedger>();
  };
  static std::mutex mutex;
  static std::map<fs::path, LastRead> read;
  const std::lock_guard lock(mutex);
  const fs::path file = experiment_folder / kLedgerFile;
  LastRead& last = read[file];
  if (const Stamp stamp = stamp_of(file); stamp != last.stamp)
    last = {stamp, stamp == Stamp() ? std::make_shared<RunLedger>() : read_ledger(file)};
  return last.ledger;
}

std::shared_ptr<const KeptRun> kept_run(const fs::path& run_folder) {
  if (fs::exists(run_folder / kRecordFile)) return nullptr;
  const fs::path run = run_folder.parent_path();
  const auto ledger = ledger_of(run.parent_path());
  const auto found = ledger->runs.find(run.filename() / run_folder.filename());
  return found == ledger->runs.end() ? nullptr : std::shared_ptr<const KeptRun>(ledger, &found->second);
}

std::vector<fs::path> known_folders(const fs::path& results, const std::string& experiment) {
  const fs::path folder = experiment_folder(results, experiment);
  const std::vector<fs::path> there = run_folders(results, experiment);
  std::set<fs::path> known(there.begin(), there.end());
  for (const auto& [place, run] : ledger_of(folder)->runs) known.insert(folder / place);
  return {known.begin(), known.end()};
}

std::vector<fs::path> known_folders(const fs::path& run) {
  const std::vector<fs::path> there = folders_in(run);
  std::set<fs::path> known(there.begin(), there.end());
  const auto ledger = ledger_of(run.parent_path());
  for (auto kept = ledger->runs.lower_bound(run.filename());
       kept != ledger->runs.end() && kept->first.parent_path() == run.filename(); ++kept)
    known.insert(run / kept->first.filename());
  return {known.begin(), known.end()};
}

}  // namespace bnlab
