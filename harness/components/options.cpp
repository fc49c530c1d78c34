#include "harness/components/options.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace bnlab {
namespace {

void declare_as(Parameter& parameter, Parameter::Kind kind, Json fallback) {
  parameter.kind = kind;
  parameter.fallback = std::move(fallback);
}

}  // namespace

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(", ", begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 2;
  }
  return all;
}

size_t place_of(const std::string& name, const std::vector<std::string>& all) {
  const auto found = std::find(all.begin(), all.end(), name);
  if (found == all.end()) {
    throw std::logic_error("no choice is named " + name);
  }
  return static_cast<size_t>(found - all.begin());
}

void declare(Parameter& parameter, bool value) {
  declare_as(parameter, Parameter::Kind::boolean, value);
}

void declare(Parameter& parameter, int64_t value) {
  declare_as(parameter, Parameter::Kind::integer, value);
}

void declare(Parameter& parameter, double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  declare_as(parameter, Parameter::Kind::number, whole ? Json(static_cast<int64_t>(value)) : Json(value));
}

void declare(Parameter& parameter, const std::string& value) {
  declare_as(parameter, Parameter::Kind::text, value);
}

void declare(Parameter& parameter, const Json& value) {
  declare_as(parameter, Parameter::Kind::group, value.is_null() ? Json::object() : value);
}

Parameter& OptionVisitor::component(const char* name, Json& chosen, const char* family, const char* help) {
  Parameter& parameter = (*this)(name, chosen, help);
  parameter.kind = Parameter::Kind::component;
  parameter.family = family;
  return parameter;
}

}  // namespace bnlab
