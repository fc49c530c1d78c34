// Lists of names in messages, and the name that was meant.
#pragma once

#include <string>
#include <vector>

namespace bnlab {

inline constexpr size_t kLongestComparedName = 64;  // longer ones are near to nothing

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count 1.
size_t edit_distance(const std::string& a, const std::string& b);

// The name among `known` that is nearest to `name` by edit distance, or "" if none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

// The end of a message about an unknown name: `; did you mean "sync"?`, or, if none is near,
// `; known: per_tower, sync`.
std::string suggestion(const std::string& name, const std::vector<std::string>& known);

// "sync, none": the texts with the separator between them.
std::string joined(const std::vector<std::string>& texts, const std::string& separator = ", ");

}  // namespace bnlab
