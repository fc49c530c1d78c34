// When the comparisons of an experiment were declared. What its spec declares is kept in
// RESULTS/EXPERIMENT/declarations.json when its first run starts; where a later start declares something
// else, that is appended with the number of runs that had finished by then. A comparison that was chosen
// after a look at results is so told from one that was declared before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

inline constexpr const char* kDeclarationsFile = "declarations.json";

struct Declaration {
  std::string at;             // now_utc()
  int64_t finished_runs = 0;  // in the experiment, by then
  std::string fingerprint;    // covers `declared`
  Json
      declared;  // {"contrasts": [...], "settings": {"steps", ...}, "matrix", "exclude", "tune", "published"}

  bool holds(const Contrast& contrast) const;
};

// A comparison with all its defaults: two are the same where these are.
Json canonical(const Contrast& contrast);

// Oldest first; none where there is no file. Throws Error (data) where it cannot be read.
std::vector<Declaration> kept_declarations(const std::filesystem::path& results,
                                           const std::string& experiment);

// What a later declaration has changed beside the comparisons: "matrix", "optimizer".
std::vector<std::string> keys_that_differ(const Declaration& earlier, const Declaration& later);

// Appends what the experiment declares, unless that was declared last; an experiment that compares nothing
// declares nothing. Returns a sentence where runs had finished before, else "". Makes the folder if need be.
std::string keep_declaration(const Experiment& experiment, const std::filesystem::path& results);

// Of two folders RESULTS/EXPERIMENT that share the work: `into` gets what both have declared. Where they
// declared the same one after the other, the earlier time counts.
void merge_declarations(const std::filesystem::path& into, const std::filesystem::path& from);

}  // namespace bnlab
