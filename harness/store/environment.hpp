// What a record says of the code, the machine and the build that computed.
#pragma once

#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// Which code computed, of this build, from the header that cmake/write_revision.cmake writes: {"version":
// "2.0.0", "git": "abc1234" or null, "dirty": false, "fingerprint": "7c59f3a02712cc76"}. The fingerprint
// covers the tokens of all sources that any run computes with: where it differs, sources have
// changed, which may mean nothing.
Json code_version();

// The same for one run, with "numerics": the entries of the panel that its run depends on, each with the hash
// of its committed numbers (harness/numerics/panel.hpp). These decide whether a record is stale.
Json code_version(const Json& spec, const std::string& device);

// Of the machine and the build, by an allow-list: no host name, no user, no path.
// {"cpu", "cpu_generation", "logical_cores", "memory_bytes", "os", "kernel", "compiler", "build_type",
// "libraries" (as given: {"libtorch": "2.11.0", "cuda": null, ...}), "variables" (those set, of a closed
// list)}. What is not known is null.
Json environment_record(const Json& libraries);

// One line that tells machines apart whose times are not compared: processor with its generation
// (where that is known), GPUs and threads of a rank.
std::string machine_text(const Json& environment, const Json& threads_per_rank);

}  // namespace bnlab
