// A spec file together with the specs that it extends.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/experiment/mistakes.hpp"
#include "harness/json.hpp"

namespace bnlab {

struct Document {
  Json value;                                  // merged; without "extends"
  std::map<std::string, std::string> origins;  // path -> file, for what comes from a base spec
};

// Reads a spec and its bases and merges them. A base's keys lie below ours: objects merge key by key,
// anything else is replaced; a component of another name replaces the base's component; an axis of the
// matrix is replaced whole, and null removes the base's. Nothing is returned where a file cannot be
// used; `mistakes` says why.
std::optional<Document> read_document(const std::string& file, Mistakes& mistakes);

// The keys of a spec laid over those of its base, as `extends` does it.
Json laid_over(const Json& base, const Json& ours);

}  // namespace bnlab
