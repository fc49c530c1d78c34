// Event files, as TensorBoard reads them: curves of numbers by name and step. A file is a row of frames, each
// with its length and two checksums (the TFRecord format), and each frame one Event in the wire format of
// protocol buffers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

struct Scalar {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string tag;  // "train/loss"
  double value = 0;
};

// The bytes of an event file.
std::string event_file(const std::vector<Scalar>& scalars);

// CRC-32C (Castagnoli), the checksum of the frames.
uint32_t crc32c(std::string_view bytes);

// What the log of a run tells: "train/loss", "train/lr", and every number of an evaluation as
// "saved/mean_iou". Its times count from `started`. Lines that are still being written, and numbers that were
// not finite, are left out. Throws Error (data) for any other line that training has not written.
std::vector<Scalar> scalars_of(const std::filesystem::path& run_folder, double started);

// Writes the event file of every run of RESULTS/EXPERIMENT into OUT/RUN_ID/PLACEMENT/. Returns how many there
// are. Runs whose record or log is damaged are left out and described in `problems`.
int export_event_files(const std::filesystem::path& results, const std::string& experiment,
                       const std::filesystem::path& out, std::vector<std::string>& problems);

}  // namespace bnlab
