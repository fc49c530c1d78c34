// Which code computed: of this build, from the header that cmake/write_revision.cmake writes.
#pragma once

#include <string>

#include "harness/json.hpp"

namespace bnlab {

// {"version": "0.1.0", "git": "abc1234" or null, "dirty": false, "fingerprint": "7c59f3a02712cc76"}. The fingerprint covers
// all that any run computes with.
Json code_version();

// The same for one run: its fingerprint covers what this run computes with, which is what all runs share, the sources of
// the components that its resolved spec names, and on a GPU the kernels for GPUs.
Json code_version(const Json& spec, const std::string& device);

}  // namespace bnlab
