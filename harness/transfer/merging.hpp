// Results of one experiment that were computed apart, each machine in its own copy of the folder, put
// together.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

// Which of two results of one run counts.
BNLAB_CHOICE(Keep, neither, into, from)

struct Merged {
  int added = 0;                      // runs that INTO lacked, or had not finished
  int replaced = 0;                   // runs of INTO that gave way to another result
  int there = 0;                      // runs that stay as they are
  std::vector<std::string> left_out;  // damaged records, and runs that a process has, each a sentence
};

// Copies the finished runs of the folders `from` into the folder `into`, all of the form RESULTS/EXPERIMENT.
// A run appears there by one rename. Throws Error (usage), before anything is copied, where a folder of
// `from` has no finished run or runs of another experiment, the folders' specs differ in what changes
// results, or a run has two results and `keep` chooses none.
Merged merge_results(const std::filesystem::path& into, const std::vector<std::filesystem::path>& from,
                     Keep keep);

}  // namespace bnlab
