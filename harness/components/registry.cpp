#include "harness/components/registry.hpp"

#include <map>
#include <stdexcept>

#include "harness/components/other_names.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

std::map<std::string, std::map<std::string, About>>& families() {
  static std::map<std::string, std::map<std::string, About>> all;
  return all;
}

std::map<std::pair<std::string, std::string>, std::string>& told() {
  static std::map<std::pair<std::string, std::string>, std::string> names;
  return names;
}

}  // namespace

const std::map<std::string, About>& registered(const std::string& family) {
  return families()[family];
}

const About* find_registered(const std::string& family, const std::string& name) {
  const auto& entries = registered(family);
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}

std::vector<std::string> registered_names(const std::string& family) {
  return mapped(registered(family), [](const auto& entry) { return entry.first; });
}

void register_about(const std::string& family, About about) {
  const std::string name = about.name;
  if (!families()[family].emplace(name, std::move(about)).second)
    throw std::logic_error("two entries of the registry '" + family + "' are named " + name);
}

Parameter component_key(const std::string& family) {
  Parameter key;
  key.name = key.family = family;
  key.kind = Parameter::Kind::component;
  return key.needed();
}

void check_component(const std::string& family, const Json& component, const std::string& path,
                     const RunOutline& run, Problems& problems) {
  const About* about = find_registered(family, component.at("name").get<std::string>());
  if (about == nullptr) return;
  Problems own;
  if (about->check) about->check(component, run, own);
  for (const auto& [key, message] : own.found()) problems.add(key_path(path, key), message);
  for (const Parameter& parameter : about->parameters()) {
    if (parameter.kind == Parameter::Kind::component) {
      check_component(parameter.family, component.at(parameter.name), key_path(path, parameter.name), run,
                      problems);
    }
  }
}

void refuse_misfits(const std::string& family, const Json& component, const RunOutline& run) {
  Problems problems;
  check_component(family, component, "", run, problems);
  if (!problems.empty()) {
    const auto all =
        mapped(problems.found(), [](const auto& found) { return found.first + ": " + found.second; });
    throw Error(Error::Kind::refused, component.at("name").get<std::string>() + ": " + joined(all, "; "));
  }
}

OtherNames::OtherNames(const std::string& family,
                       const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [theirs, ours] : names) told()[{family, plain_name(theirs)}] = ours;
}

std::string answer_to_other_name(const std::string& family, const std::string& name) {
  const std::string wanted = plain_name(name);
  const auto answer = [](const std::string& ours) { return "; bnlab calls it \"" + ours + "\""; };
  if (const std::string listed = answer_from_table(family, name); !listed.empty()) return listed;
  if (const auto found = told().find({family, wanted}); found != told().end()) return answer(found->second);
  for (const std::string& ours : registered_names(family))
    if (plain_name(ours) == wanted) return answer(ours);
  return "";
}

}  // namespace bnlab
