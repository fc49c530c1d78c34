#include "harness/records/record_check.hpp"

#include <cmath>

namespace bnlab {

Json finite(const Json& value, std::vector<std::string>& notes, const std::string& path) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) return value;
    const char* what = std::isnan(number) ? "NaN" : number > 0 ? "+infinity" : "-infinity";
    notes.push_back((path.empty() ? "the value" : path) + " was " + what);
    return nullptr;
  }
  if (value.is_object()) {
    Json checked = Json::object();
    for (const auto& [key, entry] : value.items()) {
      checked[key] = finite(entry, notes, path.empty() ? key : path + "." + key);
    }
    return checked;
  }
  if (value.is_array()) {
    Json checked = Json::array();
    for (size_t i = 0; i < value.size(); ++i) {
      checked.push_back(finite(value[i], notes, path + "[" + std::to_string(i) + "]"));
    }
    return checked;
  }
  return value;
}

}  // namespace bnlab
