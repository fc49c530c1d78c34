// The JSON Schema of specs, for editors: made from the declared keys and from the options of the components
// that are registered in some families.
#pragma once

#include <string>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

// A spec that this refuses, load_experiment refuses too. Not the other way round: what keys must agree on,
// and which ones a spec or its base must give, no schema says.
Json spec_schema(const std::vector<std::string>& families);

}  // namespace bnlab
