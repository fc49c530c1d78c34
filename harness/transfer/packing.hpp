// Results on their way to somebody else: one archive with a list of checksums, and whether all arrived as it
// was sent.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/transfer/archive.hpp"

namespace bnlab {

// In the format of sha256sum, which checks it too.
inline constexpr const char* kManifestFile = "MANIFEST.sha256";

// What others need of RESULTS/EXPERIMENT, by path below it: records, curves, the spec, pages and figures.
// Weights, logs and what launcher and ranks told each other stay behind.
Files files_to_pack(const std::filesystem::path& folder);

// The archive of these files, below the folder `name`, with their manifest.
std::string packed(const Files& files, const std::string& name);

// The files of an archive, by path below its folder.
Files unpacked(const std::filesystem::path& archive);

struct Checked {
  int files = 0;    // that the manifest lists
  int records = 0;  // that can be read
  std::vector<std::string> problems;
};

// Holds files against their manifest, and records against their run ids.
Checked check_files(const Files& files);

}  // namespace bnlab
