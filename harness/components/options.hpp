// The options of a component, declared, checked and read in one place: a struct whose members have their
// defaults and whose `describe` visits each of them once.
//
//   BNLAB_CHOICE(Route, all_gather, host)  // an enum class, and its names in specs
//
//   struct Options {
//     std::optional<int64_t> group_size;  // nothing is null in a spec
//     Route route = Route::all_gather;
//     double eps = 1e-5;
//
//     void describe(OptionVisitor& option) {
//       option("group_size", group_size, "towers that pool their moments; null: all").at_least(1);
//       option("route", route, "how the moments meet");
//       option("eps", eps, "added to the variance under the root").above(0);
//     }
//     // If present: what does not fit together, or not this run (registry.hpp).
//     void check(const RunOutline& run, Problems& problems) const;
//   };
//
// The type of a member says what its option may be: an integer, double, bool, std::string, a choice, another
// struct with `describe` (an object), and std::optional, std::vector or std::array of these. An entry of
// another family, with its own options, is a Json member visited by `option.component`. The component's class
// takes `const Options&`; make<Base, Derived> in its registration does the rest.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/json.hpp"

// Defines an enum class whose enumerators, spelt as here, are the names of the choices.
#define BNLAB_CHOICE(Name, ...)       \
  enum class Name { __VA_ARGS__ };    \
  constexpr const char* names(Name) { \
    return #__VA_ARGS__;              \
  }

namespace bnlab {

class OptionVisitor;

template <class T>
concept Described = requires(T options, OptionVisitor& visitor) { options.describe(visitor); };

template <class E>
concept Choice = std::is_enum_v<E> && requires(E value) { names(value); };

// "full, stopped" as a list.
inline std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(", ", begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 2;
  }
  return all;
}
// The place of `name` among `all`. Throws std::logic_error where there is none; `resolve` lets no such name
// pass.
inline size_t place_of(const std::string& name, const std::vector<std::string>& all) {
  const auto found = std::ranges::find(all, name);
  if (found == all.end()) throw std::logic_error("no choice is named " + name);
  return static_cast<size_t>(found - all.begin());
}

template <Choice E>
std::string name_of(E value) {
  return split_names(names(value)).at(static_cast<size_t>(value));
}

template <Choice E>
E choice_of(const std::string& name) {
  return static_cast<E>(place_of(name, split_names(names(E{}))));
}

// The name of a choice; null where there is none.
template <Choice E>
Json or_null(const std::optional<E>& value) {
  return value ? Json(name_of(*value)) : Json();
}

template <Described Options>
std::vector<Parameter> declared();

template <Described Options>
Options read_options(const Json& resolved);

// Fills in kind and default of a declaration by a value of the option's type. A Json is an object with free
// keys.
template <class T>
void declare(Parameter& parameter, const T& value) {
  using Kind = Parameter::Kind;
  if constexpr (Choice<T>) {
    declare(parameter, name_of(value));
    parameter.choices = split_names(names(value));
  } else if constexpr (Described<T> || std::is_same_v<T, Json>) {
    parameter.kind = Kind::group;
    parameter.fallback = Json::object();
    if constexpr (Described<T>)
      parameter.fields = declared<T>();
    else if (!value.is_null())
      parameter.fallback = value;
  } else {
    parameter.kind = std::is_same_v<T, bool>       ? Kind::boolean
                     : std::is_integral_v<T>       ? Kind::integer
                     : std::is_floating_point_v<T> ? Kind::number
                                                   : Kind::text;
    parameter.fallback = value;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (value == std::floor(value) && std::abs(value) < 1e15)  // help shows 1, not 1.0
      parameter.fallback = static_cast<int64_t>(value);
  }
}

template <class T>
void declare(Parameter& parameter, const std::vector<T>& values) {
  Json all = Json::array();
  for (const T& value : values) {
    declare(parameter, value);
    all.push_back(parameter.fallback);
  }
  declare(parameter, T{});
  parameter.fallback = all;
  parameter.list = true;
}

template <class T, size_t n>
void declare(Parameter& parameter, const std::array<T, n>& values) {
  declare(parameter, std::vector<T>(values.begin(), values.end()));
  parameter.length = n;
}

template <class T>
void declare(Parameter& parameter, const std::optional<T>& value) {
  declare(parameter, value.value_or(T{}));
  parameter.nullable = true;
  if (!value) parameter.fallback = nullptr;
}

// Reads a value that `resolve` has let pass.
template <class T>
void read(const Json& value, T& into) {
  if constexpr (Choice<T>)
    into = choice_of<T>(value.get<std::string>());
  else if constexpr (Described<T>)
    into = read_options<T>(value);
  else
    into = value.get<T>();
}

template <class T>
void read(const Json& value, std::optional<T>& into) {
  into.reset();
  if (!value.is_null()) read(value, into.emplace());
}

template <class T>
void read(const Json& value, std::vector<T>& into) {
  into.clear();
  for (const Json& each : value.is_array() ? value : Json::array({value})) read(each, into.emplace_back());
}

// What `describe` visits its options with: it collects their declarations, or reads their values. A key that
// the values lack keeps its default.
class OptionVisitor {
 public:
  explicit OptionVisitor(std::vector<Parameter>& declared) : declared_(&declared) {}
  explicit OptionVisitor(const Json& values) : values_(&values) {}

  template <class T>
  Parameter& operator()(const char* name, T& member, const char* help) {
    if (values_ != nullptr) {
      if (const auto value = values_->find(name); value != values_->end()) read(*value, member);
      return unused_;
    }
    Parameter& parameter = declared_->emplace_back();
    parameter.name = name;
    parameter.help = help;
    declare(parameter, member);
    return parameter;
  }

  // An entry of a family; `chosen` begins as the name of the default and becomes {"name": ..., its options}.
  Parameter& component(const char* name, Json& chosen, const char* family, const char* help) {
    Parameter& parameter = (*this)(name, chosen, help);
    parameter.kind = Parameter::Kind::component;
    parameter.family = family;
    return parameter;
  }

 private:
  std::vector<Parameter>* declared_ = nullptr;
  const Json* values_ = nullptr;
  Parameter unused_;
};

template <Described Options>
std::vector<Parameter> declared() {
  std::vector<Parameter> all;
  OptionVisitor visitor(all);
  Options().describe(visitor);
  return all;
}

template <Described Options>
Options read_options(const Json& resolved) {
  Options options;
  OptionVisitor visitor(resolved);
  options.describe(visitor);
  return options;
}

}  // namespace bnlab
