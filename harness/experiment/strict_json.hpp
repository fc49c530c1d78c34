// Reading JSON strictly, but for comments, // to the end of the line: size and depth caps, syntax errors with
// their line and a caret below it, duplicate keys with their line.
#pragma once

#include <optional>
#include <string>

#include "harness/experiment/mistakes.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

constexpr size_t kLargestSpec = size_t{1} << 20;  // bytes
constexpr size_t kDeepestSpec = 16;               // objects and arrays inside each other

// The file's value, or nothing if it cannot be read or is not an object; then `mistakes` says why.
// Duplicate keys are reported too, but leave a value.
std::optional<Json> read_strict_json(const std::string& file, Mistakes& mistakes);

// The same for a text that has been read already, of any size; `file` names it in the mistakes.
std::optional<Json> parse_strict_json(const std::string& text, const std::string& file, Mistakes& mistakes);

}  // namespace bnlab
