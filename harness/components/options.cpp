#include "harness/components/options.hpp"

#include <algorithm>
#include <stdexcept>

namespace bnlab {

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
  const auto found = std::ranges::find(all, name);
  if (found == all.end()) {
    throw std::logic_error("no choice is named " + name);
  }
  return static_cast<size_t>(found - all.begin());
}

Parameter& OptionVisitor::component(const char* name, Json& chosen, const char* family, const char* help) {
  Parameter& parameter = (*this)(name, chosen, help);
  parameter.kind = Parameter::Kind::component;
  parameter.family = family;
  return parameter;
}

}  // namespace bnlab
