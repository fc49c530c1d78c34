// Where a run lives, RESULTS/EXPERIMENT/RUN_ID/PLACEMENT/, and how its files are written: whole or not at
// all. A file appears under its name by rename, after its bytes have reached the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/placement.hpp"
#include "harness/support/json.hpp"
#include "harness/support/text_file.hpp"

namespace bnlab {

// Where a run is computed, which changes its result by no more than rounding.
struct Placement {
  int ranks = 1;
  int64_t towers_per_rank = 1;
  Device device = Device::cpu;
  std::optional<Exchange> exchange = {};  // between several ranks on CPUs, else nothing
  bool shared_gpus = false;               // several ranks on one GPU
  int nodes = 1;                          // machines that the ranks are spread over, as far as known

  // "2x4-cpu": ranks x towers per rank - device; "8x1-cuda-2nodes" on two machines; "2x4-cpu-sockets" where
  // statistics go through sockets.
  std::string name() const;
  // Whether devices stand for several: no throughput is claimed then.
  bool emulated() const { return towers_per_rank > 1 || shared_gpus; }
};

std::filesystem::path experiment_folder(const std::filesystem::path& results, const std::string& experiment);
std::filesystem::path run_folder(const std::filesystem::path& results, const std::string& experiment,
                                 const std::string& run_id, const Placement& placement);

// The folders below one, sorted by name, without hidden ones; none if it does not exist.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder);
// RESULTS/EXPERIMENT/RUN_ID/PLACEMENT for all runs that have a folder, with or without a record, sorted.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& results,
                                               const std::string& experiment);

inline constexpr const char* kSpecFile = "spec.json";            // what an experiment was last asked
inline constexpr const char* kPlacementFile = "placement.json";  // where, as far as somebody said

// The files of a run folder.
inline constexpr const char* kRecordFile = "record.json";  // last to appear: its presence means finished
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kWeightsFile = "weights.safetensors";
inline constexpr const char* kPopulationsFile = "populations.safetensors";  // shadow pairs, if there are any

inline constexpr const char* kCheckpointsFolder = "checkpoints";  // gone once the run has finished

// Makes the folder, unless it is there, so that it survives a power cut; the one around it must exist. Throws
// Error (environment).
void make_folder(const std::filesystem::path& folder);

// Replaces `file` by `text` atomically: a temporary file in the same folder (hidden, ending in ".tmp") is
// written, flushed and synced, then renamed, then the folder is synced. The folder must exist. A reader sees
// the old file or the new one, whenever the writer is killed. Throws Error (environment).
void write_atomically(const std::filesystem::path& file, std::string_view text);
// Copies a file to a place where there is none, with its bytes on the disk. Throws Error (environment).
void copy_synced(const std::filesystem::path& from, const std::filesystem::path& to);

// The same for a JSON value, indented, with a newline at the end. Text that is not UTF-8 (the tail of a
// crashed program's log) is mended with U+FFFD. Numbers that are not finite would become null silently:
// pass the value through finite() of record.hpp first.
void write_json(const std::filesystem::path& file, const Json& value);

// Throws Error (data) that names the file when it is missing, unreadable, too large, not JSON or nested too
// deep. schema.hpp has the same for what other processes wrote, with the types of its values.
Json read_json(const std::filesystem::path& file);
Json parse_json(const std::string& text, const std::string& file);  // `file` names it

}  // namespace bnlab
