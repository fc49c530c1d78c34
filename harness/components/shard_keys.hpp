// By which keys of a task its training set can be sorted into shards ("shards": "sorted:KEY"), told without making the task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

// Of a resolved task: what its sort_keys() says (harness/tasks/task.hpp). Nothing for a task that is not in the table of
// shard_keys.cpp; its runs then refuse an unknown key themselves.
std::optional<std::vector<std::string>> shard_keys(const Json& task);

}  // namespace bnlab
