#include "harness/components/component_text.hpp"

#include <algorithm>

namespace bnlab {
namespace {

Json component_of_label(const std::string& text) {
  const size_t open = text.find('(');
  if (open == std::string::npos || !text.ends_with(')')) return text;
  Json component{{"name", text.substr(0, open)}};
  int depth = 0;
  for (size_t begin = open + 1, i = begin; i < text.size(); ++i) {
    depth += (text[i] == '(') - (text[i] == ')');
    if ((text[i] != ',' || depth > 0) && i + 1 < text.size()) continue;
    begin = std::min(text.find_first_not_of(' ', begin), i);
    const std::string option = text.substr(begin, i - begin);
    if (option.empty()) break;
    const size_t equals = option.find('=');
    const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
    component[option.substr(0, equals)] =
        Json::accept(value) ? Json::parse(value) : component_of_label(value);
    begin = i + 1;
  }
  return component;
}

}  // namespace

std::optional<Json> component_of(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string::npos || text[begin] != '{') return component_of_label(text);
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool has_name = given.is_object() && given.contains("name") && given["name"].is_string();
  return has_name ? std::optional(given) : std::nullopt;
}

}  // namespace bnlab
