// What a record says of the machine and the build: an allow-list. No host name, no user, no path.
#pragma once

#include "harness/json.hpp"

namespace bnlab {

// {"version": "0.1.0", "git": "abc1234" or null, "dirty": false}: of this build, from the definitions
// BNLAB_VERSION, BNLAB_GIT_REVISION and BNLAB_GIT_DIRTY.
Json code_version();

// {"cpu", "logical_cores", "memory_bytes", "os", "kernel", "compiler", "build_type", "libraries" (as given:
// {"libtorch": "2.11.0", "cuda": null, ...}), "variables" (those set, of a closed list)}. What is not known
// is null. Build type from the definition BNLAB_BUILD_TYPE.
Json environment_record(const Json& libraries);

}  // namespace bnlab
