// The JSON type of specs, options and records: keys keep the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>

namespace bnlab {

using Json = nlohmann::ordered_json;

}  // namespace bnlab
