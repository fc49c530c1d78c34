// What records say of the machine, the build, the code and the data that they come from, key by key.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

using Facts =
    std::map<std::string, std::set<std::string>>;  // values by key: "libraries.libtorch" -> {"2.11.0"}

Facts facts_of(const std::vector<const Record*>& records);

}  // namespace bnlab
