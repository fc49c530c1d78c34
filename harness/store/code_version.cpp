#include "harness/store/code_version.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "harness/components/options.hpp"

namespace bnlab {
namespace {

using Parts =
    std::map<std::string, std::string>;  // fingerprints by name, as cmake/fingerprint.py prints them

const Parts& parts() {
  static const Parts all = [] {
    Parts found;
    std::istringstream words(BNLAB_FINGERPRINTS);
    for (std::string name, print; words >> name >> print;) found[name] = print;
    return found;
  }();
  return all;
}

void add_texts(const Json& value, std::set<std::string>& texts) {
  if (value.is_string()) texts.insert(value.get<std::string>());
  if (value.is_structured()) {
    for (const Json& entry : value) add_texts(entry, texts);
  }
}

// Every word in the description of a component that is the name of one counts: more than is used, never less.
std::set<std::string> used_parts(const Json& spec, const std::string& device) {
  std::set<std::string> used;
  for (const char* key : {"strategy", "model", "task", "optimizer"}) {
    if (spec.contains(key)) add_texts(spec.at(key), used);
  }
  std::erase_if(used, [](const std::string& text) { return !parts().contains(text); });
  used.insert("shared");
  if (device != "cpu") used.insert("cuda");
  return used;
}

}  // namespace

Json code_version() {
  return {{"version", BNLAB_VERSION},
          {"git", or_null(std::string(BNLAB_GIT_REVISION))},
          {"dirty", static_cast<bool>(BNLAB_GIT_DIRTY)},
          {"fingerprint", parts().at("all")}};
}

Json code_version(const Json& spec, const std::string& device) {
  std::string prints;
  for (const std::string& name : used_parts(spec, device)) prints += parts().at(name) + "\n";
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(prints.data(), prints.size())));
  Json version = code_version();
  version["fingerprint"] = text;
  return version;
}

}  // namespace bnlab
