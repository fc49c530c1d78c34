// What this program was built from. The build writes the values (cmake/write_revision.cmake), so that a
// commit compiles nothing else again.
#pragma once

namespace bnlab {

struct Revision {
  const char* version;
  const char* git;  // empty outside of a git repository
  bool dirty;
  const char* fingerprints;  // names and hashes, as cmake/fingerprint.py prints them
  const char* build_type;
};

extern const Revision kRevision;

}  // namespace bnlab
