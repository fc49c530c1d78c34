// Tests make tasks through the registry, as a run does: declared defaults, then what the test changes.
#pragma once

#include <memory>
#include <string>

#include "harness/registry.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::testing {

inline std::unique_ptr<Task> make_task(const std::string& name, const Json& changes,
                                       const Task::Context& context) {
  Json options = {{"name", name}};
  for (const Parameter& parameter : find_registered("task", name)->parameters) {
    options[parameter.name] = parameter.fallback;
  }
  options.update(changes);
  return Registered<Task>::create(options, context);
}

}  // namespace bnlab::testing
