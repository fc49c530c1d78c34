// Options that several commands have, and what their values mean.
#pragma once

#include <string>

#include "harness/cli/arguments.hpp"
#include "harness/launch/launch.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

inline constexpr int kMostAtOnce = 4096;  // ranks of a run, or runs side by side

// Where and how runs are computed, and which of them.
struct AskedLaunch : LaunchRequest {
  void describe(Arguments& option);
};

// Single ones.
Argument& describe_device(Arguments& option, std::string& device, const std::string& otherwise = "");
Argument& describe_data(Arguments& option, std::string& folder);  // --data, else BNLAB_DATA, else ""
Argument& describe_run_spec(Arguments& option, std::string& spec);
void describe_results(Arguments& option, std::string& folder);
void describe_notify(Arguments& option, std::string& command);  // see launch/notify.hpp

// A component as the command line names it: `sync`, or `{"name": "sync", "route": "host"}`.
Json read_component(const std::string& text);

// The same with its defaults filled in. Throws Error (spec) with what is wrong, after the name of the
// command.
Json resolved_component(const std::string& command, const std::string& family, const std::string& text);

// What `act` answers. What it refuses or cannot read was named on the command line: it throws Error (usage)
// then.
template <class Act>
auto as_usage(Act act) {
  try {
    return act();
  } catch (const Error& error) {
    const bool is_mistake = error.kind() == Error::Kind::refused || error.kind() == Error::Kind::data;
    throw Error(is_mistake ? Error::Kind::usage : error.kind(), error.what());
  }
}

}  // namespace bnlab
