// What a record says of the machine and the build: an allow-list. No host name, no user, no path.
#pragma once

#include "harness/json.hpp"

namespace bnlab {

// {"cpu", "cpu_generation", "logical_cores", "memory_bytes", "os", "kernel", "compiler", "build_type",
// "libraries" (as given: {"libtorch": "2.11.0", "cuda": null, ...}), "variables" (those set, of a closed
// list)}. What is not known is null.
Json environment_record(const Json& libraries);

}  // namespace bnlab
