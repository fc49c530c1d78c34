// A spec file together with the specs that it extends, and keys that are set from outside.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct Document {
  Json value;                                  // merged; without "extends"
  std::map<std::string, std::string> origins;  // path -> file, for what comes from a base spec
  // path -> what may have been meant, for the end of a message about what stands there
  std::map<std::string, std::string> meant = {};
};

// Reads a spec and its bases and merges them. A base's keys lie below ours: objects merge key by key,
// anything else is replaced; a component of another name replaces the base's component; an axis of the
// matrix is replaced whole, and null removes the base's. Nothing is returned where a file cannot be
// used; `mistakes` says why.
std::optional<Document> read_document(const std::string& file, Mistakes& mistakes);

// The keys of a spec laid over those of its base, as `extends` does it.
Json laid_over(const Json& base, const Json& ours);

using Override = std::pair<std::string, Json>;  // a key and its value

// Sets keys of the document; `where` says who does, for messages. Their order decides nothing. An axis of the
// document's matrix that moves a key alone gives way to it. It is a mistake where an axis would set a key
// again, or moves it together with others, for that key would be without effect; and where two overrides
// contradict each other.
void override_keys(Document& document, std::vector<Override> overrides, const std::string& where,
                   Mistakes& mistakes);

// The same for each KEY=VALUE of a command line: steps=10, task.size=[32,32], strategy=sync,
// matrix.seed=[0,1]. VALUE is JSON, or else a text.
void override_keys(Document& document, const std::vector<std::string>& overrides, Mistakes& mistakes);

}  // namespace bnlab
