// The JSON type of specs, options and records: keys keep the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace bnlab {

using Json = nlohmann::ordered_json;

// Null for what is not there.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
inline Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace bnlab
