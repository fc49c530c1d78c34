// Results on their way to somebody else: one archive with a list of checksums, and whether all arrived as it
// was sent. An archive is one that any tar can read (the ustar format), with the files held in memory; that
// of the same files is the same to the byte.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bnlab {

using Files = std::map<std::string, std::string>;  // contents by relative path

std::string tar_archive(const Files& files);

// Throws Error (data), naming `archive`, for what is damaged, cut off, no regular file or a path that leads
// elsewhere.
Files read_tar(std::string_view bytes, const std::string& archive);

// SHA-256 in hexadecimal digits.
std::string sha256(std::string_view bytes);

// In the format of sha256sum, which checks it too.
inline constexpr const char* kManifestFile = "MANIFEST.sha256";

// In a folder of scripts/gpu_check.sh: its verdicts (gpu_check_page.hpp).
inline constexpr const char* kGpuCheckFile = "check.json";

// What others need of RESULTS/EXPERIMENT, by path below it: records, curves, the spec, pages and figures.
// Weights, logs and what launcher and ranks told each other stay behind. Of a folder of scripts/gpu_check.sh
// all but weights.
Files files_to_pack(const std::filesystem::path& folder);

// The archive of these files, below the folder `name`, with their manifest.
std::string packed(const Files& files, const std::string& name);

// The files of an archive, by path below its folder. Throws Error (data) for what is no archive of results.
Files unpacked(const std::filesystem::path& archive);

struct Checked {
  int files = 0;                     // that the manifest lists
  int records = 0;                   // that can be read
  std::map<std::string, int> stale;  // of these, how many this program would compute otherwise, by the reason
  std::vector<std::string> problems;
};

// Holds files against their manifest, and records against their run ids.
Checked check_files(const Files& files);

}  // namespace bnlab
