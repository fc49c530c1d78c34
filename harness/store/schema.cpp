#include "harness/store/schema.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <regex>
#include <stdexcept>
#include <texts/probe_schema.hpp>
#include <texts/record_schema.hpp>

#include "harness/components/parameters.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr size_t kLongestMatched = 4096;  // a text with a pattern takes stack for each character

struct Type {
  std::function<bool(const Json&)> is;
  const char* words;
};

// As JSON Schema has it, 100.0 is one.
bool is_integer(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

const Type& type_named(const std::string& name) {
  static const std::map<std::string, Type> types = {
      {"integer", {&is_integer, "an integer"}}, {"number", {&Json::is_number, "a number"}},
      {"string", {&Json::is_string, "a text"}}, {"boolean", {&Json::is_boolean, "true or false"}},
      {"array", {&Json::is_array, "a list"}},   {"object", {&Json::is_object, "an object"}},
      {"null", {&Json::is_null, "null"}}};
  return types.at(name);
}

bool matches(const std::string& text, const std::string& pattern) {
  thread_local std::map<std::string, std::regex> compiled;
  auto found = compiled.find(pattern);
  if (found == compiled.end()) found = compiled.emplace(pattern, std::regex(pattern)).first;
  return text.size() <= kLongestMatched && std::regex_search(text, found->second);
}

class Check {
 public:
  Check(const Json& root, Keys keys) : root_(root), keys_(keys) {}

  std::vector<std::string> misfits(const Json& value, const Json& schema, const std::string& path) const {
    std::vector<std::string> found;
    look(value, schema, path, found);
    return found;
  }

 private:
  void look(const Json& value, const Json& schema, const std::string& path,
            std::vector<std::string>& found) const {
    const std::string begin = path.empty() ? "" : path + ": ";
    const auto expect = [&](bool fine, const std::string& what) {
      if (!fine) found.push_back(begin + "expected " + what + ", got " + shown(value));
    };
    for (const auto& [keyword, rule] : schema.items()) {
      if (keyword == "$ref") {
        look(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), path, found);
      } else if (keyword == "type") {
        const auto types = mapped(rule.is_array() ? rule : Json::array({rule}),
                                  [](const Json& name) { return type_named(name); });
        expect(std::ranges::any_of(types, [&](const Type& type) { return type.is(value); }),
               joined(mapped(types, [](const Type& type) { return std::string(type.words); }), " or "));
      } else if (keyword == "const") {
        expect(value == rule, rule.dump());
      } else if (keyword == "enum") {
        expect(std::ranges::find(rule, value) != rule.end(), "one of " + rule.dump());
      } else if (keyword == "anyOf") {
        look_for_one(value, rule, path, found);
      } else if (keyword == "pattern") {
        expect(keys_ == Keys::any || !value.is_string() || matches(value.get<std::string>(), rule),
               "a match of " + rule.dump());
      } else if (keyword == "minimum") {
        expect(!value.is_number() || value.get<double>() >= rule.get<double>(), "at least " + rule.dump());
      } else if (keyword == "maximum") {
        expect(!value.is_number() || value.get<double>() <= rule.get<double>(), "at most " + rule.dump());
      } else if (keyword == "exclusiveMinimum") {
        expect(!value.is_number() || value.get<double>() > rule.get<double>(), "more than " + rule.dump());
      } else if (keyword == "required") {
        for (const Json& key : rule) {
          const bool lacks = value.is_object() && !value.contains(key.get<std::string>());
          if (lacks && keys_ != Keys::any) found.push_back(begin + "lacks " + key.dump());
        }
      } else if (keyword == "items") {
        for (size_t i = 0; value.is_array() && i < value.size(); ++i)
          look(value[i], rule, path + "[" + std::to_string(i) + "]", found);
      } else if (keyword == "properties") {
        for (const auto& [key, of_key] : rule.items())
          if (value.is_object() && value.contains(key)) look(value[key], of_key, key_path(path, key), found);
      } else if (keyword == "additionalProperties") {
        look_at_others(value, schema, path, found);
      } else if (keyword != "$schema" && keyword != "$defs" && keyword != "title" &&
                 keyword != "description") {
        throw std::invalid_argument("the check does not know the keyword " + keyword);
      }
    }
  }

  // Where none of the alternatives fits, the last one, which is the largest, says why.
  void look_for_one(const Json& value, const Json& alternatives, const std::string& path,
                    std::vector<std::string>& found) const {
    std::vector<std::string> of_last;
    for (const Json& one : alternatives) {
      of_last = misfits(value, one, path);
      if (of_last.empty()) return;
    }
    found.insert(found.end(), of_last.begin(), of_last.end());
  }

  // The keys that `properties` does not name.
  void look_at_others(const Json& value, const Json& schema, const std::string& path,
                      std::vector<std::string>& found) const {
    const Json& rule = schema.at("additionalProperties");
    const auto named = schema.find("properties");
    if (!value.is_object() || rule == true) return;
    for (const auto& [key, entry] : value.items()) {
      if (named != schema.end() && named->contains(key)) continue;
      if (rule.is_object()) look(entry, rule, key_path(path, key), found);
      if (rule == false && keys_ == Keys::exact) found.push_back(key_path(path, key) + ": unknown key");
    }
  }

  const Json& root_;
  Keys keys_;
};

}  // namespace

const Json& record_schema() {
  static const Json schema = Json::parse(kRecordSchemaText);
  return schema;
}

const Json& probe_schema() {
  static const Json schema = Json::parse(kProbeSchemaText);
  return schema;
}

std::vector<std::string> misfits(const Json& value, const Json& schema, Keys keys) {
  return Check(schema, keys).misfits(value, schema, "");
}

Json read_json(const std::filesystem::path& file, const Json& schema, Keys keys) {
  Json value = read_json(file);
  const std::vector<std::string> found = misfits(value, schema, keys);
  if (!found.empty()) throw Error(Error::Kind::data, file.string() + ": " + found.front());
  return value;
}

}  // namespace bnlab
