// How often a run was started without coming to an end of its own: its machine was lost, or the launcher was killed
// before it could write a record. The number lies beside the run's folder, in RUN_ID/.PLACEMENT.attempts.
#pragma once

#include <filesystem>

namespace bnlab {

inline constexpr int kMostAttempts = 3;  // so often a run is tried before it is taken for the cause

// 0 where there were none, or where the file cannot be read.
int attempts_without_end(const std::filesystem::path& run_folder);

// 0 removes the file. Throws Error (environment).
void set_attempts(const std::filesystem::path& run_folder, int attempts);

}  // namespace bnlab
