// Tests make tasks through the registry, as a run does: resolved with the declared defaults.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::test {

inline Json resolved_task(const std::string& name, const Json& changes) {
  Problems problems;
  Json options = resolve(find_registered("task", name)->parameters(), changes, name, problems);
  for (const auto& [path, message] : problems.found()) ADD_FAILURE() << path << ": " << message;
  options["name"] = name;
  return options;
}

inline std::unique_ptr<Task> make_task(const std::string& name, const Json& changes,
                                       const Task::Context& context) {
  return Registered<Task>::create(resolved_task(name, changes), context);
}

}  // namespace bnlab::test
