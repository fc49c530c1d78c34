// Tests make tasks through the registry, as a run does: resolved with the declared defaults. Whichever options a test
// gives, the keys that the table of shards has for them are those of the task.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "harness/components/registry.hpp"
#include "harness/components/shard_keys.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::test {

inline std::unique_ptr<Task> make_task(const std::string& name, const Json& changes,
                                       const Task::Context& context) {
  Problems problems;
  Json options = resolve(find_registered("task", name)->parameters, changes, name, problems);
  for (const auto& [path, message] : problems.found()) {
    ADD_FAILURE() << path << ": " << message;
  }
  options["name"] = name;
  auto task = Registered<Task>::create(options, context);
  EXPECT_EQ(shard_keys(options), task->sort_keys()) << "harness/components/shard_keys.cpp says otherwise";
  return task;
}

}  // namespace bnlab::test
