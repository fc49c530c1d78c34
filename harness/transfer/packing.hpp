// Results on their way to somebody else: a folder of all that others need, with a list of checksums that
// coreutils check; and whether such a folder is as it was sent.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/transfer/keeping.hpp"

namespace bnlab {

inline constexpr const char* kManifestFile = "MANIFEST.sha256";  // as sha256sum writes it

struct Packed {
  int files = 0;
  KeepSummary kept;
};

// Copies what others need of RESULTS/EXPERIMENT into a new folder: finished runs as its ledger, unfinished
// ones as they lie there, the spec, declarations, confirmations, tuning, inputs, pages and figures. Weights,
// logs and what launcher and ranks told each other stay behind. Of a folder of scripts/gpu_check.sh all is
// copied but weights. Throws Error where that cannot be; `into` is not there then.
Packed pack_results(const std::filesystem::path& folder, const std::filesystem::path& into);

struct Checked {
  int files = 0;                     // listed by the manifest
  int records = 0;                   // readable
  std::map<std::string, int> stale;  // records that this program would compute otherwise, by the reason
  std::vector<std::string> problems;
};

// Whether scripts/gpu_check.sh has left a folder; and its page, whose rows that are ok become a number.
bool holds_gpu_check(const std::filesystem::path& folder);
std::string gpu_check_text(const std::filesystem::path& folder);

// Holds a folder against its manifest, and its records against their run ids.
Checked check_results(const std::filesystem::path& folder);

}  // namespace bnlab
