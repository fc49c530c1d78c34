// What a run is called: the labels of its components and its id.
//
// The id is `<label>-<towers>x<batch>-seed<k>-<hash>`. The hash is the first 12 hexadecimal digits of
// XXH3-128 over the canonical form of the resolved run: compact JSON, keys sorted, numbers in their shortest
// exact form, without what equals its default and without the keys that change no result (keys.cpp). A
// component keeps its name and what differs from its own defaults. So the hash does not depend on the
// order of keys, on what is spelt out and what left to defaults, on the file's name or on the machine; and a
// key that is new to this program moves no id, as long as its default is what was done before.
#include <algorithm>
#include <cctype>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/fingerprint.hpp"
#include "harness/experiment/run.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr size_t kLongestSlug = 60;  // characters of the label; the id names a folder

// An option's value within a label.
std::string value_text(const Json& value, const std::string& family) {
  if (value.is_object() && value.contains("name")) return label(value, family);
  if (value.is_array() && !family.empty())
    return "[" + joined(mapped(value, [&](const Json& each) { return value_text(each, family); }), ",") + "]";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Letters, digits, `_` and `.` stay; everything between them becomes one hyphen.
std::string slug(const std::string& text) {
  std::string safe;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0 || c == '_' || c == '.')
      safe += static_cast<char>(c);
    else if (!safe.empty() && safe.back() != '-')
      safe += '-';
  safe = safe.substr(0, kLongestSlug);
  while (!safe.empty() && safe.back() == '-') safe.pop_back();
  return safe;
}

nlohmann::json reduced(const std::vector<Parameter>& declared, const Json& object);
nlohmann::json reduced(const Parameter& parameter, const Json& value);

// What stands where a spec gives nothing: complete, and without what equals a default.
struct Standard {
  nlohmann::json whole, reduced;
};

// Declarations live as long as the program, and a matrix asks for the same ones in every cell.
const Standard& standard(const Parameter& parameter) {
  thread_local std::map<const Parameter*, Standard> known;
  const auto [found, is_new] = known.try_emplace(&parameter);
  if (is_new) {
    Problems unused;
    Parameter alone = parameter;
    alone.required = false;
    const Json value = resolve({alone}, Json::object(), "", unused)[parameter.name];
    found->second = {value, reduced(parameter, value)};
  }
  return found->second;
}

nlohmann::json reduced(const Parameter& parameter, const Json& value) {
  using Kind = Parameter::Kind;
  const std::string name = name_in(value);
  const About* about = parameter.kind == Kind::component ? find_registered(parameter.family, name) : nullptr;
  if (about != nullptr) {
    nlohmann::json component = reduced(about->parameters(), value);
    component["name"] = name;
    return component;
  }
  if (parameter.kind == Kind::group && value.is_object() && !parameter.fields.empty())
    return reduced(parameter.fields, value);
  nlohmann::json all = value;
  for (size_t i = 0; parameter.kind == Kind::group && value.is_array() && i < value.size(); ++i)
    all[i] = reduced(parameter.fields, value[i]);
  return all;
}

// What differs from the defaults, with sorted keys.
nlohmann::json reduced(const std::vector<Parameter>& declared, const Json& object) {
  nlohmann::json differing = nlohmann::json::object();
  for (const auto& parameter : declared) {
    if (object.contains(parameter.name)) {
      nlohmann::json value = reduced(parameter, object[parameter.name]);
      if (parameter.required || value != standard(parameter).reduced)
        differing[parameter.name] = std::move(value);
    }
  }
  return differing;
}

std::string hash(const Json& run) {
  nlohmann::json differing = reduced(run_parameters(), run);
  for (const auto& parameter : run_parameters())
    if (!changes_result(parameter.name)) differing.erase(parameter.name);
  const std::string canonical = differing.dump();
  const XXH128_hash_t digest = XXH3_128bits(canonical.data(), canonical.size());
  return hexadecimal(digest.high64).substr(0, 12);
}

}  // namespace

std::string label(const Json& component, const std::string& family) {
  if (!component.is_object() || !component.contains("name") || !component["name"].is_string())
    return component.is_string() ? component.get<std::string>() : shown(component);
  const std::string name = component["name"];
  const About* about = find_registered(family, name);
  if (about == nullptr) return name;
  std::string brackets;
  for (const auto& parameter : about->parameters()) {
    if (!component.contains(parameter.name)) continue;
    const Json& value = component[parameter.name];
    // Compared with sorted keys, and with 1 equal to 1.0.
    if (parameter.required || nlohmann::json(value) != standard(parameter).whole)
      brackets += (brackets.empty() ? "" : ",") + parameter.name + "=" + value_text(value, parameter.family);
  }
  return brackets.empty() ? name : name + "(" + brackets + ")";
}

std::string family_at(const std::string& key) {
  const auto declared = declarations(key);
  return declared.empty() ? "" : declared[0]->family;
}

std::string run_id(const Json& run) {
  const Json& batch = run["batch_per_tower"];
  return slug(label(run["strategy"])) + "-" + run["towers"].dump() + "x" +
         (batch.is_array() ? "mixed" : batch.dump()) + "-seed" + run["seed"].dump() + "-" + hash(run);
}

}  // namespace bnlab
