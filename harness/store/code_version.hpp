// Which code computed: of this build, from the header that cmake/write_revision.cmake writes.
#pragma once

#include <string>

#include "harness/json.hpp"

namespace bnlab {

// {"version": "0.1.0", "git": "abc1234" or null, "dirty": false, "fingerprint": "7c59f3a02712cc76"}. The
// fingerprint covers the tokens of all sources that any run computes with: where it differs, sources have
// changed, which may mean nothing.
Json code_version();

// The same for one run, with "numerics": the entries of the panel that its run depends on, each with the hash
// of its committed numbers (harness/numerics/panel.hpp). These decide whether a record is stale.
Json code_version(const Json& spec, const std::string& device);

}  // namespace bnlab
