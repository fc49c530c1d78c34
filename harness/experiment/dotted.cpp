#include "harness/experiment/dotted.hpp"

#include <algorithm>

#include "harness/components/registry.hpp"
#include "harness/experiment/keys.hpp"

namespace bnlab {
namespace {

using Candidates = std::vector<const Parameter*>;

constexpr size_t kMostParts = 16;  // of a dotted key, as deep as a spec may be

// What may follow `parameter` and a dot.
Candidates below(const Parameter& parameter) {
  static const Parameter name = {.name = "name", .kind = Parameter::Kind::text};
  Candidates found;
  for (const auto& field : parameter.fields) {
    found.push_back(&field);
  }
  if (parameter.kind == Parameter::Kind::component) {
    found.push_back(&name);
    for (const auto& [unused, about] : registered(parameter.family)) {
      for (const auto& entry : about.parameters) {
        found.push_back(&entry);
      }
    }
  }
  return found;
}

Candidates below_all(const Candidates& parents) {
  Candidates found;
  for (const Parameter* parent : parents) {
    const Candidates more = below(*parent);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

Candidates top() {
  Candidates found;
  for (const auto& parameter : run_parameters()) {
    found.push_back(&parameter);
  }
  return found;
}

Candidates named(const Candidates& all, const std::string& name) {
  Candidates found;
  for (const Parameter* parameter : all) {
    if (parameter->name == name) {
      found.push_back(parameter);
    }
  }
  return found;
}

std::vector<std::string> names_of(const Candidates& all) {
  std::vector<std::string> names;
  for (const Parameter* parameter : all) {
    if (std::find(names.begin(), names.end(), parameter->name) == names.end()) {
      names.push_back(parameter->name);
    }
  }
  return names;
}

// "optimizer.lr" for "lr": a parameter of a component, written without the component.
std::string key_of_parameter(const std::string& name) {
  for (const Parameter* parent : top()) {
    if (!named(below(*parent), name).empty()) {
      return parent->name + "." + name;
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string top_level(const std::string& path) {
  return path.substr(0, path.find_first_of(".["));
}

bool lies_within(const std::string& path, const std::string& key) {
  return path.compare(0, key.size(), key) == 0 &&
         (path.size() == key.size() || path[key.size()] == '.' || path[key.size()] == '[');
}

Json lifted(const Json& value) {
  return value.is_string() ? Json{{"name", value}} : value;
}

const Json* find(const Json& run, const std::string& key) {
  const Json* node = &run;
  for (const auto& part : split(key, '.')) {
    if (!node->is_object() || !node->contains(part)) {
      return nullptr;
    }
    node = &(*node)[part];
  }
  return node;
}

void set(Json& run, const std::string& key, const Json& value) {
  Json* node = &run;
  for (const auto& part : split(key, '.')) {
    if (node->is_null()) {
      *node = Json::object();
    } else if (node->is_string()) {
      *node = lifted(*node);
    }
    if (!node->is_object()) {
      return;
    }
    node = &(*node)[part];
  }
  *node = value;
}

std::vector<const Parameter*> declarations(const std::string& key) {
  const auto parts = split(key, '.');
  if (parts.size() > kMostParts) {
    return {};
  }
  Candidates known = top();
  Candidates found;
  for (const auto& part : parts) {
    found = named(known, part);
    known = below_all(found);
  }
  return found;
}

std::string unknown_key(const std::string& key) {
  const auto parts = split(key, '.');
  if (parts.size() > kMostParts) {
    return "unknown key: it has more than " + std::to_string(kMostParts) + " parts";
  }
  Candidates known = top();
  std::string prefix;
  std::string unknown;
  for (const auto& part : parts) {
    const Candidates found = named(known, part);
    if (found.empty()) {
      unknown = part;
      break;
    }
    prefix += part + ".";
    known = below_all(found);
  }
  std::vector<std::string> names = names_of(known);
  if (names.empty()) {
    return "unknown key: " + prefix.substr(0, prefix.size() - 1) + " holds no keys";
  }
  std::string near = nearest(unknown, names);
  if (near.empty() && parts.size() == 1) {
    near = key_of_parameter(key);
  }
  if (!near.empty()) {
    return "unknown key; did you mean \"" + prefix + near + "\"?";
  }
  for (auto& name : names) {
    name = prefix + name;
  }
  return "unknown key" + suggestion("", names);
}

}  // namespace bnlab
