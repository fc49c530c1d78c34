// The metrics.jsonl of a run (in the ledger: `log`), a line of JSON for what training reported: the one
// reader of all that draw from it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// Calls `use` with every line of a run's log, be it in its folder or in the ledger; its keys then have the
// types that results/record.md says. A line that is still being written, the last one, is left out, and so is
// one that is damaged: what is wrong with the first of these is returned, with its file and number, "" if
// nothing is. No file has no lines; one that cannot be read is damaged as a whole.
std::string read_metrics(const std::filesystem::path& run_folder,
                         const std::function<void(const Json&)>& use);

}  // namespace bnlab
