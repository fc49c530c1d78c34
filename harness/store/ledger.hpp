// The ledger of an experiment, RESULTS/EXPERIMENT/runs.jsonl: finished runs that are kept in one file, a line
// of JSON each, sorted by run id and placement. A line is the record as it was, with the lines of its
// metrics.jsonl under `log`. What lies in a run's own folder goes before its line.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

inline constexpr const char* kLedgerFile = "runs.jsonl";

struct KeptRun {
  Json record;
  Json log;                    // an array
  std::filesystem::path line;  // "results/tradeoff/runs.jsonl:12", for messages
};

struct RunLedger {
  std::map<std::filesystem::path, KeptRun> runs;  // by RUN_ID/PLACEMENT
  std::vector<std::string> problems;              // lines that are damaged and left aside, each a sentence
};

// The ledger as it lies on the disk now; it is read again only where it has changed. No file has no runs.
std::shared_ptr<const RunLedger> ledger_of(const std::filesystem::path& experiment_folder);

// The kept run whose folder would be RESULTS/EXPERIMENT/RUN_ID/PLACEMENT; null where there is none, or the
// folder has a record of its own.
std::shared_ptr<const KeptRun> kept_run(const std::filesystem::path& run_folder);

// The folders RESULTS/EXPERIMENT/RUN_ID/PLACEMENT, there or kept in the ledger, sorted: of an experiment, and
// of one run.
std::vector<std::filesystem::path> known_folders(const std::filesystem::path& results,
                                                 const std::string& experiment);
std::vector<std::filesystem::path> known_folders(const std::filesystem::path& run);

}  // namespace bnlab
