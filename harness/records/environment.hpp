// What a record says of the machine and the build: an allow-list. No host name, no user, no path.
#pragma once

#include "harness/json.hpp"

namespace bnlab {

// {"version": "0.1.0", "git": "abc1234" or null, "dirty": false, "fingerprint": "7c59f3a02712cc76"}: of this build,
// from the header that cmake/write_revision.cmake writes. The fingerprint covers what a run computes with.
Json code_version();

// {"cpu", "logical_cores", "memory_bytes", "os", "kernel", "compiler", "build_type", "libraries" (as given:
// {"libtorch": "2.11.0", "cuda": null, ...}), "variables" (those set, of a closed list)}. What is not known
// is null.
Json environment_record(const Json& libraries);

}  // namespace bnlab
