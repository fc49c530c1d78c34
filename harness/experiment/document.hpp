// A spec file together with the specs that it extends, and keys that are set from outside.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

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

// Sets each KEY=VALUE in turn, as the command line gives them: steps=10, task.size=[32,32], strategy=sync,
// matrix.seed=[0,1]. VALUE is JSON, or else a text. An axis of the matrix that moves KEY alone
// gives way to it. Where an axis would set KEY again, or moves it together with others, that is a mistake:
// the override would be without effect.
void override_keys(Document& document, const std::vector<std::string>& overrides, Mistakes& mistakes);

// Sets one key of the document likewise. `where` says who does, for messages.
void override_key(Document& document, const std::string& key, const Json& value, const std::string& where,
                  Mistakes& mistakes);

}  // namespace bnlab
