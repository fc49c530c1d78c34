// What a run is called: the label of its strategy and its id.
//
// The id is `<label>-<towers>x<batch>-seed<k>-<hash>`. The hash is the first 12 hexadecimal digits of
// XXH3-128 over the canonical form of the resolved run: compact JSON, keys sorted, defaults filled in,
// numbers in their shortest exact form, without the keys that change no result (keys.hpp). It does not
// depend on the order of keys, on what is spelt out and what left to defaults, on the file's name or
// on the machine.
#include <algorithm>
#include <cctype>
#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness/registry.hpp"
#include "harness/spec/keys.hpp"
#include "harness/spec/run.hpp"

namespace bnlab {
namespace {

constexpr size_t kLongestSlug = 60;  // of the label's part: the id names a folder

std::string value_text(const Json& value) {
  if (value.is_object() && value.contains("name")) {
    return label(value);
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Letters, digits, `_` and `.` stay; everything between them becomes one hyphen.
std::string slug(const std::string& text) {
  std::string safe;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '_' || c == '.') {
      safe += static_cast<char>(c);
    } else if (!safe.empty() && safe.back() != '-') {
      safe += '-';
    }
  }
  safe = safe.substr(0, kLongestSlug);
  while (!safe.empty() && safe.back() == '-') {
    safe.pop_back();
  }
  return safe;
}

std::string hash(const Json& run) {
  nlohmann::json sorted = nlohmann::json::object();
  for (const auto& [key, value] : run.items()) {
    if (changes_result(key)) {
      sorted[key] = value;
    }
  }
  const std::string canonical = sorted.dump();
  const XXH128_hash_t digest = XXH3_128bits(canonical.data(), canonical.size());
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(digest.high64));
  return std::string(digits, 12);
}

}  // namespace

std::string label(const Json& strategy) {
  if (!strategy.is_object() || !strategy.contains("name") || !strategy["name"].is_string()) {
    return strategy.is_string() ? strategy.get<std::string>() : shown(strategy);
  }
  const std::string name = strategy["name"];
  const About* about = find_registered("strategy", name);
  std::string brackets;
  for (const auto& parameter : about == nullptr ? std::vector<Parameter>{} : about->parameters) {
    if (!strategy.contains(parameter.name)) {
      continue;
    }
    Problems unused;
    Parameter optional = parameter;
    optional.required = false;
    const Json standard = resolve({optional}, Json::object(), "", unused)[parameter.name];
    const Json& value = strategy[parameter.name];
    // Compared with sorted keys, and with 1 equal to 1.0.
    if (parameter.required || nlohmann::json(value) != nlohmann::json(standard)) {
      brackets += (brackets.empty() ? "" : ",") + parameter.name + "=" + value_text(value);
    }
  }
  return brackets.empty() ? name : name + "(" + brackets + ")";
}

std::string run_id(const Json& run) {
  const Json& batch = run["batch_per_tower"];
  return slug(label(run["strategy"])) + "-" + run["towers"].dump() + "x" +
         (batch.is_array() ? "mixed" : batch.dump()) + "-seed" + run["seed"].dump() + "-" + hash(run);
}

}  // namespace bnlab
