// JSON has no NaN and no infinity: such a number becomes null, and a note beside it says what it was.
#pragma once

#include <string>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

// `value` with every number that is not finite replaced by null; for each a note such as
// "result.train_loss was NaN" is appended to `notes`. `path` names `value` itself.
Json finite(const Json& value, std::vector<std::string>& notes, const std::string& path = "");

}  // namespace bnlab
