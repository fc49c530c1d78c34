// A validator for as much of JSON Schema (draft 2020-12) as record.schema.json uses.
#pragma once

#include <string>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

// What is wrong with `value`, each with its path; empty if it conforms. Throws std::invalid_argument for a
// keyword that is not implemented, so that a schema never asks for more than is checked.
std::vector<std::string> schema_problems(const Json& value, const Json& schema);

}  // namespace bnlab
