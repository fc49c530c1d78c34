// JSON of files that anybody may have made: no deeper than it may be, no key twice in an object. Keys are sorted and found
// by halving, so that a hundred thousand of them are read in no time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bnlab {

// Throws Error (data): what is wrong with the text, without its name.
nlohmann::json parse_bounded_json(const std::string& text, size_t deepest);

}  // namespace bnlab
