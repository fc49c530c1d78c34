// A file of bnlab probe --out, which a command line names.
#pragma once

#include <string>

#include "harness/support/error.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// What a file of bnlab probe --out holds. Throws Error (usage) where it is none.
Json read_probe(const std::string& file);

// What `act` answers by a probe. Throws Error (usage) where the probe lacks a part that it needs.
template <class Act>
auto by_probe(const std::string& file, Act act) {
  try {
    return act();
  } catch (const Json::exception&) {
    throw Error(Error::Kind::usage,
                file + ": expected a file of bnlab probe --out, got one that lacks a part");
  }
}

}  // namespace bnlab
