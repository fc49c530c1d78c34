// A component as people write it in one word.
#pragma once

#include <optional>
#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// `sync` stays a text; {"name": "sync", "gradient": "stopped"} comes of itself and of the label
// `sync(gradient=stopped)`. Nothing where a text that begins with { is no object with a name.
std::optional<Json> component_of(const std::string& text);

}  // namespace bnlab
