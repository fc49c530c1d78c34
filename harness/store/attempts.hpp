// Attempts at a run. Attempt N leaves two things beside the run's folder RUN_ID/PLACEMENT: the file
// .PLACEMENT.claim.N, which tells whose it is, and the folder .PLACEMENT.attempt.N.PROCESS, in which it
// works. Both are gone once the run has come to an end; what a killed process leaves is removed by the next
// launcher that looks at the run. `folder` below is the run's own folder or that of an attempt at it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace bnlab {

// Another process's run is taken over after so long without a sign of life, unless somebody says otherwise.
inline constexpr std::chrono::seconds kTakenForDeadAfter{900};
inline constexpr int kMostAttempts = 3;         // a run whose ranks were lost so often is not tried again
inline constexpr int kLastAttempt = 1'000'000;  // a file that names a later one is nobody's claim

// How often ranks of a run were lost while its launcher lived, since it had a record or made a checkpoint.
// An attempt whose launcher was killed says nothing of the run: machines may be taken away at any time.
int attempts_without_end(const std::filesystem::path& folder);
// Makes the claim one of these: its attempt is over, and nobody has it.
void count_attempt(const std::filesystem::path& claim);
bool is_counted(const std::filesystem::path& claim);
// Counts no more than the last `attempts` of those up to the attempt that works in `folder`.
void set_attempts(const std::filesystem::path& folder, int attempts);

// The files or folders of all attempts at a run, in the order of their numbers. Throws
// std::filesystem::filesystem_error.
struct NumberedFile {
  int number;
  std::filesystem::path path;
};
std::vector<NumberedFile> claims_of(const std::filesystem::path& folder);
std::vector<NumberedFile> attempt_folders_of(const std::filesystem::path& folder);

std::filesystem::path claim_file(const std::filesystem::path& run_folder, int number);
// Of this process, no other one's.
std::filesystem::path attempt_folder(const std::filesystem::path& run_folder, int number);

// The folders of an experiment's runs and of attempts at them, sorted.
std::vector<std::filesystem::path> begun_folders(const std::filesystem::path& results,
                                                 const std::string& experiment);
// The placement that such a folder is for.
std::string placement_of(const std::filesystem::path& folder);
// Names of the experiments that have such folders or a ledger, sorted.
std::vector<std::string> list_experiments(const std::filesystem::path& results);
// The run folders, there or not yet, beside which a claim stands, sorted.
std::vector<std::filesystem::path> claimed_folders(const std::filesystem::path& results,
                                                   const std::string& experiment);

}  // namespace bnlab
