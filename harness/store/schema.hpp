// JSON that other processes wrote, held against a schema before anybody looks for a value in it: what has
// the wrong type, or lies out of range, is named with its file and key.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

const Json& record_schema();  // results/record.schema.json
const Json& probe_schema();   // results/probe.schema.json

// Which keys a value must have: none, for whoever reads each as "null if it is not there", and takes a text
// whatever its pattern; those that the schema requires; or these and no unknown ones, as bnlab writes it.
enum class Keys { any, required, exact };

// What is wrong with `value`, each with its path; empty if it conforms. As much of JSON Schema (draft
// 2020-12) as the schemas here use; throws std::invalid_argument for another keyword, so that none asks for
// more than is checked.
std::vector<std::string> misfits(const Json& value, const Json& schema, Keys keys);

// The JSON of a file. Throws Error (data) that names the file and what is wrong first.
Json read_json(const std::filesystem::path& file, const Json& schema, Keys keys = Keys::required);

}  // namespace bnlab
