#include "tests/store/schema_check.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <stdexcept>

namespace bnlab {
namespace {

using Misfits = std::vector<std::string>;

bool has_type(const Json& value, const std::string& type) {
  static const std::map<std::string, bool (Json::*)() const> types = {{"integer", &Json::is_number_integer},
                                                                      {"number", &Json::is_number},
                                                                      {"string", &Json::is_string},
                                                                      {"boolean", &Json::is_boolean},
                                                                      {"array", &Json::is_array},
                                                                      {"object", &Json::is_object},
                                                                      {"null", &Json::is_null}};
  return (value.*types.at(type))();
}

void check(const Json& value, const Json& schema, const Json& root, const std::string& path,
           Misfits& problems);

bool conforms(const Json& value, const Json& schema, const Json& root) {
  Misfits problems;
  check(value, schema, root, "", problems);
  return problems.empty();
}

void check_keys(const Json& value, const Json& schema, const Json& root, const std::string& path,
                Misfits& problems) {
  const Json properties = schema.value("properties", Json::object());
  const Json others = schema.value("additionalProperties", Json(true));
  for (const auto& [key, entry] : value.items()) {
    if (properties.contains(key)) {
      check(entry, properties[key], root, path + "." + key, problems);
    } else if (others.is_object()) {
      check(entry, others, root, path + "." + key, problems);
    } else if (others == false) {
      problems.push_back(path + ": unknown key " + key);
    }
  }
}

void check(const Json& value, const Json& schema, const Json& root, const std::string& path,
           Misfits& problems) {
  const auto expect = [&](bool fine, const std::string& what) {
    if (!fine) problems.push_back(path + ": " + what + ", got " + value.dump());
  };
  const auto any = [](const Json& options, auto fits) {
    return std::any_of(options.begin(), options.end(), fits);
  };
  if (value.is_object()) check_keys(value, schema, root, path, problems);
  for (const auto& [keyword, rule] : schema.items()) {
    if (keyword == "$ref") {
      check(value, root.at(Json::json_pointer(rule.get<std::string>().substr(1))), root, path, problems);
    } else if (keyword == "type") {
      expect(any(rule.is_array() ? rule : Json::array({rule}),
                 [&](const Json& t) { return has_type(value, t); }),
             "expected " + rule.dump());
    } else if (keyword == "const") {
      expect(value == rule, "expected " + rule.dump());
    } else if (keyword == "enum") {
      expect(any(rule, [&](const Json& option) { return value == option; }),
             "expected one of " + rule.dump());
    } else if (keyword == "anyOf") {
      expect(any(rule, [&](const Json& option) { return conforms(value, option, root); }),
             "expected one of the alternatives");
    } else if (keyword == "pattern") {
      expect(!value.is_string() ||
                 std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>())),
             "expected a match of " + rule.dump());
    } else if (keyword == "minimum") {
      expect(!value.is_number() || value.get<double>() >= rule.get<double>(), "expected >= " + rule.dump());
    } else if (keyword == "exclusiveMinimum") {
      expect(!value.is_number() || value.get<double>() > rule.get<double>(), "expected > " + rule.dump());
    } else if (keyword == "required" && value.is_object()) {
      for (const Json& key : rule) {
        if (!value.contains(key.get<std::string>())) problems.push_back(path + ": lacks " + key.dump());
      }
    } else if (keyword == "items" && value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        check(value[i], rule, root, path + "[" + std::to_string(i) + "]", problems);
      }
    } else if (keyword != "required" && keyword != "items" && keyword != "properties" &&
               keyword != "additionalProperties" && keyword != "$schema" && keyword != "$defs" &&
               keyword != "title" && keyword != "description") {
      throw std::invalid_argument("the check does not know the keyword " + keyword);
    }
  }
}

}  // namespace

std::vector<std::string> schema_problems(const Json& value, const Json& schema) {
  Misfits problems;
  check(value, schema, schema, "record", problems);
  return problems;
}

}  // namespace bnlab
