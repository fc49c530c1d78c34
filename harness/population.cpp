#include "harness/population.hpp"

#include <algorithm>
#include <map>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

const std::map<std::string, Population::Kind>& kinds() {
  static const std::map<std::string, Population::Kind> all{
      {"saved", Population::Kind::saved},   {"mean", Population::Kind::mean},
      {"pooled", Population::Kind::pooled}, {"precise", Population::Kind::precise},
      {"batch", Population::Kind::batch},
  };
  return all;
}

constexpr const char* kTower = "tower:";
constexpr size_t kLongestNumber = 6;  // digits

// The K of "tower:K", or -1.
int64_t tower_of(const std::string& text) {
  const std::string prefix = kTower;
  const std::string digits = text.substr(std::min(prefix.size(), text.size()));
  const bool number = !digits.empty() && digits.size() <= kLongestNumber &&
                      digits.find_first_not_of("0123456789") == std::string::npos &&
                      (digits.size() == 1 || digits[0] != '0');
  return text.rfind(prefix, 0) == 0 && number ? std::stoll(digits) : -1;
}

}  // namespace

Population read_population(const std::string& text, int64_t precise_batches) {
  Population population;
  if (const int64_t tower = tower_of(text); tower >= 0) {
    population.kind = Population::Kind::tower;
    population.tower = tower;
    return population;
  }
  const auto found = kinds().find(text);
  if (found == kinds().end()) {
    throw Error(Error::Kind::spec, population_problem(text, 0));
  }
  population.kind = found->second;
  population.batches = population.kind == Population::Kind::precise ? precise_batches : 0;
  return population;
}

std::string population_problem(const std::string& text, int64_t towers) {
  if (const int64_t tower = tower_of(text); tower >= 0) {
    return tower < towers ? ""
                          : "expected a tower from 0 to " + std::to_string(std::max<int64_t>(towers, 1) - 1) +
                                ", got \"" + text + "\"";
  }
  if (kinds().count(text) > 0) {
    return "";
  }
  const std::vector<std::string> known{"saved", "tower:0", "mean", "pooled", "precise", "batch"};
  const std::string near = nearest(text, known);
  return "expected saved, tower:K, mean, pooled, precise or batch, got \"" + text + "\"" +
         (near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

}  // namespace bnlab
