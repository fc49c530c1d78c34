#include "harness/components/parameters.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "harness/components/other_names.hpp"

namespace bnlab {
namespace {

constexpr size_t kShownLength = 60;  // characters of a value that messages show

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
  if (below) return (parameter.above_lowest ? " > " : " >= ") + low;
  return above ? (parameter.below_highest ? " < " : " <= ") + high : "";
}

std::string with_article(const std::string& noun) {
  return (std::string("aeiou").find(noun[0]) == std::string::npos ? "a " : "an ") + noun;
}

// What one value must be, or where `many`, each value of a list.
std::string value_text(const Parameter& parameter, bool many) {
  switch (parameter.kind) {
    case Parameter::Kind::integer:
      return (many ? "integers" : "an integer") + range_text(parameter);
    case Parameter::Kind::number:
      return (many ? "numbers" : "a number") + range_text(parameter);
    case Parameter::Kind::boolean:
      return many ? "booleans" : "true or false";
    case Parameter::Kind::text:
      if (!parameter.choices.empty()) {
        return (many || parameter.choices.size() == 1 ? "\"" : "one of \"") +
               joined(parameter.choices, "\", \"") + "\"";
      }
      return many ? "texts" : parameter.filled ? "a text that is not empty" : "a text";
    case Parameter::Kind::component:
      return with_article(parameter.family) + " (its name, or {\"name\": ..., its parameters})";
    case Parameter::Kind::group:
      return many ? "objects" : "an object";
  }
  return "";
}

}  // namespace

std::string expectation(const Parameter& parameter) {
  const bool counted = parameter.list && parameter.kind == Parameter::Kind::text;
  std::string text = counted ? "an integer" + range_text(parameter) : value_text(parameter, /*many=*/false);
  if (parameter.list) {
    const std::string count = parameter.length == 0 ? "" : std::to_string(parameter.length) + " ";
    const std::string list = "a list of " + count + value_text(parameter, /*many=*/true) +
                             (parameter.filled ? " that is not empty" : "");
    text = parameter.or_one ? text + " or " + list : list;
  }
  return text + (parameter.nullable ? " or null" : "");
}

std::string shown(const Json& value) {
  // Control characters and everything outside ASCII come escaped: a message stays one line.
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kShownLength ? text : text.substr(0, kShownLength - 3).append("...");
}

std::string key_path(const std::string& path, const std::string& key) {
  const bool plain =
      !key.empty() && key.size() <= kLongestComparedName && std::ranges::all_of(key, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ',';
      });
  if (!plain) return path + "[" + shown(key) + "]";
  return path.empty() ? key : path + "." + key;
}

}  // namespace bnlab
