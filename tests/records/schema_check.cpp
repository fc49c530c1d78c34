#include "tests/records/schema_check.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <stdexcept>

namespace bnlab {
namespace {

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "null") return value.is_null();
  throw std::invalid_argument("unknown type " + type);
}

class Check {
 public:
  explicit Check(const Json& root) : root_(root) {}

  void run(const Json& value, const Json& schema, const std::string& path) {
    static const std::set<std::string> known = {"$schema",
                                                "title",
                                                "$defs",
                                                "$ref",
                                                "type",
                                                "const",
                                                "enum",
                                                "required",
                                                "properties",
                                                "items",
                                                "anyOf",
                                                "description",
                                                "pattern",
                                                "minimum",
                                                "exclusiveMinimum",
                                                "additionalProperties"};
    for (const auto& [keyword, unused] : schema.items()) {
      if (!known.contains(keyword)) throw std::invalid_argument("the validator does not know " + keyword);
    }
    if (schema.contains("$ref"))
      run(value, root_.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))), path);
    check_value(value, schema, path);
    if (value.is_object()) check_object(value, schema, path);
    if (value.is_array() && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i)
        run(value[i], schema["items"], path + "[" + std::to_string(i) + "]");
    }
  }

  std::vector<std::string> problems;

 private:
  void expect(bool fine, const std::string& path, const std::string& what) {
    if (!fine) problems.push_back(path + ": " + what);
  }

  void check_value(const Json& value, const Json& schema, const std::string& path) {
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      const bool fine =
          std::any_of(types.begin(), types.end(), [&](const Json& type) { return has_type(value, type); });
      expect(fine, path, "expected " + types.dump() + ", got " + value.dump());
    }
    if (schema.contains("const"))
      expect(value == schema["const"], path, "expected " + schema["const"].dump());
    if (schema.contains("enum")) {
      const Json& all = schema["enum"];
      expect(std::find(all.begin(), all.end(), value) != all.end(), path,
             "expected one of " + all.dump() + ", got " + value.dump());
    }
    if (value.is_string() && schema.contains("pattern")) {
      const std::regex pattern(schema["pattern"].get<std::string>());
      expect(std::regex_search(value.get<std::string>(), pattern), path, value.dump() + " does not match");
    }
    if (value.is_number()) {
      const double number = value.get<double>();
      if (schema.contains("minimum")) expect(number >= schema["minimum"].get<double>(), path, "too small");
      if (schema.contains("exclusiveMinimum")) {
        expect(number > schema["exclusiveMinimum"].get<double>(), path, "too small");
      }
    }
    if (schema.contains("anyOf")) {
      const Json& options = schema["anyOf"];
      expect(std::any_of(options.begin(), options.end(),
                         [&](const Json& option) { return conforms(value, option, path); }),
             path, "matches none of the alternatives");
    }
  }

  bool conforms(const Json& value, const Json& schema, const std::string& path) const {
    Check option(root_);
    option.run(value, schema, path);
    return option.problems.empty();
  }

  void check_object(const Json& value, const Json& schema, const std::string& path) {
    for (const Json& key : schema.value("required", Json::array())) {
      expect(value.contains(key.get<std::string>()), path, "lacks " + key.dump());
    }
    const Json properties = schema.value("properties", Json::object());
    const Json others = schema.value("additionalProperties", Json(true));
    for (const auto& [key, entry] : value.items()) {
      if (properties.contains(key)) {
        run(entry, properties[key], path + "." + key);
      } else if (others.is_object()) {
        run(entry, others, path + "." + key);
      } else {
        expect(others == true, path, "unknown key " + key);
      }
    }
  }

  const Json& root_;
};

}  // namespace

std::vector<std::string> schema_problems(const Json& value, const Json& schema) {
  Check check(schema);
  check.run(value, schema, "record");
  return check.problems;
}

}  // namespace bnlab
