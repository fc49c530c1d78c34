#include "harness/experiment/dotted.hpp"

#include <algorithm>
#include <iterator>

#include "harness/components/other_names.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

using Candidates = std::vector<const Parameter*>;

constexpr size_t kMostParts = 16;  // as deep as a spec may be

void append(Candidates& found, const std::vector<Parameter>& parameters) {
  for (const auto& parameter : parameters) found.push_back(&parameter);
}

Candidates top() {
  Candidates found;
  append(found, run_parameters());
  return found;
}

// What may follow one of the parents and a dot.
Candidates below(const Candidates& parents) {
  static const Parameter name = {.name = "name", .kind = Parameter::Kind::text};
  Candidates found;
  for (const Parameter* parent : parents) {
    append(found, parent->fields);
    if (parent->kind == Parameter::Kind::component) {
      found.push_back(&name);
      for (const auto& [unused, about] : registered(parent->family)) append(found, about.parameters());
    }
  }
  return found;
}

Candidates named(const Candidates& all, const std::string& name) {
  Candidates found;
  std::ranges::copy_if(all, std::back_inserter(found), [&](const auto* p) { return p->name == name; });
  return found;
}

std::vector<std::string> names_of(const Candidates& all) {
  std::vector<std::string> names;
  for (const Parameter* parameter : all)
    if (std::ranges::find(names, parameter->name) == names.end()) names.push_back(parameter->name);
  return names;
}

// "optimizer.lr" for "lr": a parameter of a component, written without the component.
std::string key_of_parameter(const std::string& name) {
  for (const Parameter* parent : top())
    if (!named(below({parent}), name).empty()) return parent->name + "." + name;
  return "";
}

// How far a dotted key is known.
struct Search {
  Candidates found;     // what the whole key may mean; none if a part of it is unknown
  Candidates known;     // what may follow the parts that are known,
  std::string prefix;   // which are these: "optimizer."
  std::string unknown;  // the part behind them
};

Search search(const std::vector<std::string>& parts) {
  Search search{{}, top(), "", ""};
  for (const auto& part : parts) {
    search.found = named(search.known, part);
    if (search.found.empty()) {
      search.unknown = part;
      break;
    }
    search.prefix += part + ".";
    search.known = below(search.found);
  }
  return search;
}

void erase(Json& run, const std::string& key) {
  const size_t dot = key.find('.');
  const std::string first = key.substr(0, dot);
  if (dot == std::string::npos && run.is_object())
    run.erase(first);
  else if (run.is_object() && run.contains(first))
    erase(run[first], key.substr(dot + 1));
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

std::string name_in(const Json& component) {
  const auto name = component.is_object() ? component.find("name") : component.end();
  return name != component.end() && name->is_string() ? name->get<std::string>() : "";
}

Json without(const Json& object, const std::string& key) {
  Json rest = Json::object();
  for (const auto& [name, value] : object.items())
    if (name != key) rest[name] = value;
  return rest;
}

Json apart_from(Json run, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) erase(run, key);
  return run;
}

const Json* find(const Json& run, const std::string& key) {
  const Json* node = &run;
  for (const auto& part : split(key, '.')) {
    if (!node->is_object() || !node->contains(part)) return nullptr;
    node = &(*node)[part];
  }
  return node;
}

bool set(Json& run, const std::string& key, const Json& value) {
  Json* node = &run;
  for (const auto& part : split(key, '.')) {
    if (node->is_null())
      *node = Json::object();
    else if (node->is_string())
      *node = lifted(*node);
    if (!node->is_object()) return false;
    node = &(*node)[part];
  }
  *node = value;
  return true;
}

std::vector<const Parameter*> declarations(const std::string& key) {
  const auto parts = split(key, '.');
  return parts.size() > kMostParts ? Candidates{} : search(parts).found;
}

std::string suggested_key(const std::string& key, const std::vector<std::string>& known) {
  const std::string answer = answer_to_other_key("", key);
  if (!answer.empty()) return answer;
  std::string near = nearest(key, known);
  if (near.empty()) near = key_of_parameter(key);
  return near.empty() ? suggestion("", known) : "; did you mean \"" + near + "\"?";
}

std::string key_called(const std::string& name) {
  std::string key = name;
  std::ranges::replace(key, '-', '_');
  if (!declarations(key).empty()) return key;
  if (const std::string ours = key_elsewhere(key); !ours.empty()) return ours;
  return key_of_parameter(key);
}

std::string unknown_key(const std::string& key) {
  const auto parts = split(key, '.');
  if (parts.size() > kMostParts)
    return "unknown key: it has more than " + std::to_string(kMostParts) + " parts";
  const auto [found, known, prefix, unknown] = search(parts);
  const std::vector<std::string> names = names_of(known);
  if (names.empty()) return "unknown key: " + prefix.substr(0, prefix.size() - 1) + " holds no keys";
  if (parts.size() == 1) return "unknown key" + suggested_key(key, names);
  const std::string around = prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1);
  if (const std::string answer = answer_to_other_key(around, unknown); !answer.empty())
    return "unknown key" + answer;
  const std::string near = nearest(unknown, names);
  if (!near.empty()) return "unknown key; did you mean \"" + prefix + near + "\"?";
  return "unknown key" +
         suggestion("", mapped(names, [&](const std::string& name) { return prefix + name; }));
}

}  // namespace bnlab
