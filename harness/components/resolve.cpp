// The strict reading of a spec: every value against its declaration, all mistakes collected.
#include <algorithm>
#include <cmath>

#include "harness/components/other_names.hpp"
#include "harness/components/parameters.hpp"
#include "harness/components/registry.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

// A long double holds every integer of JSON exactly.
bool in_range(const Parameter& parameter, long double value) {
  return std::isfinite(value) &&
         (parameter.above_lowest ? value > parameter.lowest : value >= parameter.lowest) &&
         (parameter.below_highest ? value < parameter.highest : value <= parameter.highest);
}

bool is_integer(const Parameter& parameter, const Json& value) {
  const auto number = [&] {
    return value.is_number_unsigned() ? static_cast<long double>(value.get<uint64_t>())
                                      : static_cast<long double>(value.get<int64_t>());
  };
  return value.is_number_integer() && in_range(parameter, number());
}

bool is_text(const Parameter& parameter, const std::string& value) {
  const auto& choices = parameter.choices;
  return !(parameter.filled && value.empty()) && (choices.empty() || std::ranges::count(choices, value) > 0);
}

// Resolves the values of one spec; mistakes go to `problems`.
class Resolver {
 public:
  explicit Resolver(Problems& problems) : problems_(problems) {}

  // `owner`: ` of strategy "sync"` in messages about unknown keys, or "". A component has a `name`, which
  // stands first.
  Json object(const std::vector<Parameter>& declared, const Json& given, const std::string& path,
              const std::string& owner, const Json& name = Json()) {
    Json complete = Json::object();
    if (!name.is_null()) complete["name"] = name;
    if (!given.is_object()) {
      problems_.add(path, "expected an object, got " + shown(given));
      return complete;
    }
    for (const auto& [key, unused] : given.items()) {
      const bool names_it = key == "name" && !name.is_null();
      if (!names_it && std::ranges::find(declared, key, &Parameter::name) == declared.end()) {
        std::vector<std::string> known = mapped(declared, &Parameter::name);
        if (!name.is_null()) known.insert(known.begin(), "name");
        const std::string answer = answer_to_other_key(path, key);
        problems_.add(key_path(path, key),
                      "unknown key" + owner + (answer.empty() ? suggestion(key, known) : answer));
      }
    }
    for (const auto& parameter : declared) {
      const std::string at = key_path(path, parameter.name);
      if (given.contains(parameter.name))
        complete[parameter.name] = value(parameter, given[parameter.name], at);
      else if (parameter.required)
        problems_.add(at, "missing, expected " + expectation(parameter));
      else
        complete[parameter.name] = value(parameter, parameter.fallback, at);
    }
    return complete;
  }

 private:
  Json value(const Parameter& parameter, const Json& given, const std::string& path) {
    if (given.is_null() && parameter.nullable) return given;
    const bool alone = parameter.list && parameter.or_one && given.is_number();
    if (parameter.list && !alone) return list(parameter, given, path);
    switch (parameter.kind) {
      case Parameter::Kind::integer:
        return expect(is_integer(parameter, given), parameter, given, path);
      case Parameter::Kind::number:
        return number(parameter, given, path);
      case Parameter::Kind::boolean:
        return expect(given.is_boolean(), parameter, given, path);
      case Parameter::Kind::text:
        return expect(alone ? is_integer(parameter, given) : given.is_string() && is_text(parameter, given),
                      parameter, given, path);
      case Parameter::Kind::component:
        return component(parameter, given, path);
      case Parameter::Kind::group:
        return given.is_object() && !parameter.fields.empty() ? object(parameter.fields, given, path, "")
                                                              : group_expected(parameter, given, path);
    }
    return given;
  }

  Json expect(bool holds, const Parameter& parameter, const Json& given, const std::string& path) {
    if (!holds) problems_.add(path, "expected " + expectation(parameter) + ", got " + shown(given));
    return given;
  }

  // A text in place of an object that needs one text alone says which.
  Json group_expected(const Parameter& parameter, const Json& given, const std::string& path) {
    std::string cure;
    if (given.is_string() && std::ranges::count(parameter.fields, true, &Parameter::required) == 1) {
      const auto needed = std::ranges::find(parameter.fields, true, &Parameter::required);
      cure = "; write " + shown({{needed->name, given}});
    }
    if (!given.is_object())
      problems_.add(path, "expected " + expectation(parameter) + ", got " + shown(given) + cure);
    return given;
  }

  Json number(const Parameter& parameter, const Json& given, const std::string& path) {
    const bool holds = given.is_number() && in_range(parameter, given.get<double>());
    expect(holds, parameter, given, path);
    // Always a double, and never -0, so that 1, 1.0 and 1e0 are one value with one run id.
    return holds ? Json(given.get<double>() + 0.0) : given;
  }

  Json list(const Parameter& parameter, const Json& given, const std::string& path) {
    const bool fits = given.is_array() && (parameter.length == 0 || given.size() == parameter.length) &&
                      !(parameter.filled && given.empty());
    if (!fits) return expect(false, parameter, given, path);
    Parameter entry = parameter;
    entry.list = false;
    entry.nullable = false;
    Json complete = Json::array();
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string at = path + "[" + std::to_string(i) + "]";
      complete.push_back(value(entry, given[i], at));
      const auto earlier = given.begin() + static_cast<std::ptrdiff_t>(i);
      if (parameter.kind == Parameter::Kind::text && std::count(given.begin(), earlier, given[i]) > 0)
        problems_.add(at, shown(given[i]) + " appears twice");
    }
    return complete;
  }

  Json component(const Parameter& parameter, const Json& given, const std::string& path) {
    const bool is_object = given.is_object();
    if (!is_object && !given.is_string()) return expect(false, parameter, given, path);
    if (const std::string answer = parameter.family == "model" && is_object ? answer_to_encoder(given) : "";
        !answer.empty()) {
      problems_.add(path, "an encoder, as segmentation_models names it; bnlab " + answer);
      return given;
    }
    const std::string name_path = is_object ? key_path(path, "name") : path;
    const Json named = name_of(parameter, given);
    if (!named.is_string()) {
      const std::string expected = "expected the name of a known " + parameter.family;
      const std::string known = suggestion("", registered_names(parameter.family));
      problems_.add(name_path, given.contains("name") ? expected + ", got " + shown(named) + known
                                                      : "missing, " + expected + known);
      return given;
    }
    const std::string name = named;
    const About* about = find_registered(parameter.family, name);
    if (about == nullptr) {
      // "resnet" of depth 20 is another network than that of depth 50.
      const std::string depth = is_object && given.contains("depth") ? given["depth"].dump() : "";
      std::string answer = depth.empty() ? "" : answer_from_table(parameter.family, name + depth);
      if (answer.empty()) answer = answer_to_other_name(parameter.family, name);
      const std::string known = component_suggestion(name, registered_names(parameter.family));
      problems_.add(name_path,
                    "unknown " + parameter.family + " " + shown(name) + (answer.empty() ? known : answer));
      return given;
    }
    return object(about->parameters(), is_object ? given : Json::object(), path,
                  " of " + parameter.family + " \"" + name + "\"", name);
  }

  // What stands where a component's name should be. An object without a name is the default component
  // with other parameters.
  static Json name_of(const Parameter& parameter, const Json& given) {
    const Json& source = given.is_object() && !given.contains("name") ? parameter.fallback : given;
    return source.is_object() && source.contains("name") ? source["name"] : source;
  }

  Problems& problems_;
};

}  // namespace

Json resolve(const std::vector<Parameter>& declared, const Json& given, const std::string& path,
             Problems& problems) {
  return Resolver(problems).object(declared, given, path, "");
}

}  // namespace bnlab
