// What a spec can name, described from its registration: the one source of the help on the terminal, of the
// JSON for other programs and of the catalogue in Markdown.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"

namespace bnlab {

// Families as the command line names them ("strategies") and as the registry does ("strategy").
struct Family {
  const char* plural;
  const char* name;
};
const std::vector<Family>& families();

using Entries = std::map<std::string, About>;

// Everything known of an entry, in lines of at most 100 columns. `chosen`: values to show in place of
// defaults, which then stand beside them.
std::string about_text(const About& about, const Json& chosen = Json::object());
Json about_json(const About& about);

// A table: name, summary and (where entries say) what they exchange.
std::string entries_text(const Entries& entries);

// A table of the entries, then each one's limits and parameters.
std::string entries_markdown(const Entries& entries);

}  // namespace bnlab
