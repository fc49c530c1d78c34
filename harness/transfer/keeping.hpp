// Finished runs, moved from their folders into the ledger of their experiment (harness/store/ledger.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bnlab {

struct KeepSummary {
  int runs = 0;                   // in the ledger now,
  int added = 0;                  // those whose line is new or another one
  std::vector<std::string> left;  // folders that stay as well, or are not kept, each a sentence
};

// Writes the finished runs of the folder RESULTS/EXPERIMENT into its ledger, then deletes the folders that
// hold no more than the ledger does: logs and messages of ranks go, weights stay. Runs that somebody works
// on, and damaged ones, are left alone. Throws Error (data) where a line of the ledger is damaged; nothing
// has changed then.
KeepSummary keep_runs(const std::filesystem::path& experiment_folder);

}  // namespace bnlab
