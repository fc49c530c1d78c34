#include "harness/components/parameters.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace bnlab {
namespace {

constexpr size_t kShownLength = 60;          // characters of a value that messages show
constexpr size_t kLongestComparedName = 64;  // longer ones are near to nothing

Parameter declare(Parameter::Kind kind, std::string name, Json fallback, std::string help) {
  Parameter parameter;
  parameter.kind = kind;
  parameter.name = std::move(name);
  parameter.fallback = std::move(fallback);
  parameter.help = std::move(help);
  return parameter;
}

std::string number_text(double value) {
  char text[64];
  const bool whole = value == std::floor(value) && std::abs(value) < 1e16;
  const auto end = whole ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed)
                         : std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

// " in (0, 1]", " >= 1", "" ...
std::string range_text(const Parameter& parameter) {
  const bool below = std::isfinite(parameter.lowest);
  const bool above = std::isfinite(parameter.highest);
  const std::string low = number_text(parameter.lowest);
  const std::string high = number_text(parameter.highest);
  if (below && above) {
    return std::string(" in ") + (parameter.above_lowest ? "(" : "[") + low + ", " + high +
           (parameter.below_highest ? ")" : "]");
  }
  if (below) {
    return (parameter.above_lowest ? " > " : " >= ") + low;
  }
  return above ? (parameter.below_highest ? " < " : " <= ") + high : "";
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text += (text.empty() ? "\"" : ", \"") + name + "\"";
  }
  return text;
}

std::string with_article(const std::string& noun) {
  return (std::string("aeiou").find(noun[0]) == std::string::npos ? "a " : "an ") + noun;
}

std::string list_text(const Parameter& parameter) {
  const std::string count = parameter.length == 0 ? "" : std::to_string(parameter.length) + " ";
  const std::string list = "a list of " + count + "integers" + range_text(parameter);
  return parameter.or_integer ? "an integer" + range_text(parameter) + " or " + list : list;
}

std::string text_list_text(const Parameter& parameter) {
  const std::string entries = parameter.choices.empty() ? "texts" : quoted_list(parameter.choices);
  return "a list of " + entries + (parameter.lowest >= 1 ? " that is not empty" : "");
}

std::string expectation_of_kind(const Parameter& parameter) {
  switch (parameter.kind) {
    case Parameter::Kind::integer:
      return "an integer" + range_text(parameter);
    case Parameter::Kind::number:
      return "a number" + range_text(parameter);
    case Parameter::Kind::boolean:
      return "true or false";
    case Parameter::Kind::text:
      return parameter.lowest >= 1 ? "a text that is not empty" : "a text";
    case Parameter::Kind::choice:
      return (parameter.choices.size() == 1 ? "" : "one of ") + quoted_list(parameter.choices);
    case Parameter::Kind::integer_list:
      return list_text(parameter);
    case Parameter::Kind::text_list:
      return text_list_text(parameter);
    case Parameter::Kind::component:
      return with_article(parameter.family) + " (its name, or {\"name\": ..., its parameters})";
    case Parameter::Kind::group:
      return "an object";
    case Parameter::Kind::group_list:
      return "a list of objects";
  }
  return "";
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count 1.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

Parameter Parameter::integer(std::string name, Json fallback, std::string help) {
  return declare(Kind::integer, std::move(name), std::move(fallback), std::move(help));
}

Parameter Parameter::number(std::string name, Json fallback, std::string help) {
  return declare(Kind::number, std::move(name), std::move(fallback), std::move(help));
}

Parameter Parameter::boolean(std::string name, bool fallback, std::string help) {
  return declare(Kind::boolean, std::move(name), fallback, std::move(help));
}

Parameter Parameter::text(std::string name, Json fallback, std::string help) {
  return declare(Kind::text, std::move(name), std::move(fallback), std::move(help));
}

Parameter Parameter::choice(std::string name, Json fallback, std::vector<std::string> choices,
                            std::string help) {
  Parameter parameter = declare(Kind::choice, std::move(name), std::move(fallback), std::move(help));
  parameter.choices = std::move(choices);
  return parameter;
}

Parameter Parameter::integers(std::string name, Json fallback, size_t length, std::string help) {
  Parameter parameter = declare(Kind::integer_list, std::move(name), std::move(fallback), std::move(help));
  parameter.length = length;
  return parameter;
}

Parameter Parameter::texts(std::string name, Json fallback, std::vector<std::string> choices,
                           std::string help) {
  Parameter parameter = declare(Kind::text_list, std::move(name), std::move(fallback), std::move(help));
  parameter.choices = std::move(choices);
  return parameter;
}

Parameter Parameter::component(std::string name, std::string family, Json fallback, std::string help) {
  Parameter parameter = declare(Kind::component, std::move(name), std::move(fallback), std::move(help));
  parameter.family = std::move(family);
  return parameter;
}

Parameter Parameter::group(std::string name, std::vector<Parameter> fields, std::string help) {
  Parameter parameter = declare(Kind::group, std::move(name), Json::object(), std::move(help));
  parameter.fields = std::move(fields);
  return parameter;
}

Parameter Parameter::groups(std::string name, std::vector<Parameter> fields, std::string help) {
  Parameter parameter = declare(Kind::group_list, std::move(name), Json::array(), std::move(help));
  parameter.fields = std::move(fields);
  return parameter;
}

Parameter&& Parameter::at_least(double value) && {
  lowest = value;
  return std::move(*this);
}

Parameter&& Parameter::at_most(double value) && {
  highest = value;
  return std::move(*this);
}

Parameter&& Parameter::above(double value) && {
  lowest = value;
  above_lowest = true;
  return std::move(*this);
}

Parameter&& Parameter::below(double value) && {
  highest = value;
  below_highest = true;
  return std::move(*this);
}

Parameter&& Parameter::or_null() && {
  nullable = true;
  return std::move(*this);
}

Parameter&& Parameter::null_by_default() && {
  nullable = true;
  fallback = nullptr;
  return std::move(*this);
}

Parameter&& Parameter::or_one_integer() && {
  or_integer = true;
  return std::move(*this);
}

Parameter&& Parameter::needed() && {
  required = true;
  return std::move(*this);
}

std::string expectation(const Parameter& parameter) {
  return expectation_of_kind(parameter) + (parameter.nullable ? " or null" : "");
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  if (name.size() > kLongestComparedName) {
    return "";
  }
  std::string best;
  size_t best_distance = 0;
  for (const auto& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    const size_t near = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    if (distance <= near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  if (!near.empty()) {
    return "; did you mean \"" + near + "\"?";
  }
  std::string all;
  for (const auto& candidate : known) {
    all += (all.empty() ? "" : ", ") + candidate;
  }
  return "; known: " + (all.empty() ? "none" : all);
}

std::string shown(const Json& value) {
  // Control characters and everything outside ASCII come escaped: a message stays one line.
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kShownLength ? text : text.substr(0, kShownLength - 3).append("...");
}

std::string key_path(const std::string& path, const std::string& key) {
  const bool plain = !key.empty() && key.size() <= kLongestComparedName &&
                     std::all_of(key.begin(), key.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ',';
                     });
  if (!plain) {
    return path + "[" + shown(key) + "]";
  }
  return path.empty() ? key : path + "." + key;
}

}  // namespace bnlab
