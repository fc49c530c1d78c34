#include "harness/transfer/keeping.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <map>

#include "harness/store/attempts.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/record.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// One process at a time writes a ledger.
class Locked {
 public:
  explicit Locked(const fs::path& folder)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_ < 0 || ::flock(folder_, LOCK_EX) != 0)
      throw Error(Error::Kind::environment, "cannot lock the folder " + folder.string());
  }
  ~Locked() { ::close(folder_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int folder_;
};

std::string line_of(Json record, const Json& log) {
  if (!log.empty()) record["log"] = log;
  return record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// What the record and its log do not have: the name of the first such file, "" where there is none.
std::string more_in(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool told = name == kRecordFile || name == kMetricsFile || name == "job.json" ||
                      name.ends_with(".log") || name.ends_with(".report.json") || name.ends_with(".tmp");
    if (!told || !entry.is_regular_file()) return name;
  }
  return "";
}

}  // namespace

KeepSummary keep_runs(const fs::path& experiment_folder) {
  const Locked locked(experiment_folder);
  const auto ledger = ledger_of(experiment_folder);
  if (!ledger->problems.empty()) throw Error(Error::Kind::data, ledger->problems.front());
  std::map<fs::path, std::string> lines;
  for (const auto& [place, run] : ledger->runs) lines[place] = line_of(run.record, run.log);
  KeepSummary kept;
  std::vector<fs::path> whole;  // in the ledger
  for (const fs::path& run : folders_in(experiment_folder)) {
    for (const fs::path& folder : folders_in(run)) {
      try {
        if (!fs::exists(folder / kRecordFile) || !claims_of(folder).empty()) continue;
        const Record record = *find_record(folder);
        check_place(record);
        if (!record.finished()) continue;
        Json log = Json::array();
        if (const std::string damaged = read_metrics(folder, [&](const Json& line) { log.push_back(line); });
            !damaged.empty()) {
          throw Error(Error::Kind::data, damaged);
        }
        std::string& line = lines[run.filename() / folder.filename()];
        const std::string now = line_of(record.json(), log);
        kept.added += now != line;
        line = now;
        const std::string more = more_in(folder);
        if (more.empty())
          whole.push_back(folder);
        else
          kept.left.push_back(folder.string() + " stays: it has " + more);
      } catch (const Error& error) {
        kept.left.emplace_back(error.what());
      }
    }
  }
  kept.runs = static_cast<int>(lines.size());
  std::string text;
  for (const auto& [place, line] : lines) text += line;
  if (kept.added > 0) write_atomically(experiment_folder / kLedgerFile, text);
  for (const fs::path& folder : whole) {
    fs::remove_all(folder);
    std::error_code not_empty;
    fs::remove(folder.parent_path(), not_empty);
  }
  return kept;
}

}  // namespace bnlab
