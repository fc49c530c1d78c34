// Event files, as TensorBoard reads them: curves of numbers by name and step. A file is a row of frames, each
// with its length and two checksums (the TFRecord format), and each frame one Event in the wire format of
// protocol buffers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bnlab {

// The event file of a run's log: "train/loss", "train/lr", and every number of an evaluation as
// "saved/mean_iou". Its times count from `started`, in seconds since 1970. Lines that are still being
// written, and numbers that were not finite, are left out. Throws Error (data) for any other line that
// training has not written.
std::string event_file(const std::filesystem::path& run_folder, double started);

// Writes the event file of every run of RESULTS/EXPERIMENT that has a log into OUT/RUN_ID/PLACEMENT/. Returns
// how many there are. Runs whose record or log is damaged are left out and described in `problems`.
int export_event_files(const std::filesystem::path& results, const std::string& experiment,
                       const std::filesystem::path& out, std::vector<std::string>& problems);

}  // namespace bnlab
