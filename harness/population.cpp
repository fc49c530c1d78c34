#include "harness/population.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using Kind = Population::Kind;

const std::map<std::string, Population>& plain_ones() {
  static const std::map<std::string, Population> all{
      {"saved", {.kind = Kind::saved}},
      {"mean", {.kind = Kind::mean}},
      {"pooled", {.kind = Kind::pooled}},
      {"precise", {.kind = Kind::precise}},
      {"batch", {.kind = Kind::batch}},
      {"own_tower", {.kind = Kind::own_tower}},
      {kAveragedWeights, {.kind = Kind::saved, .averaged_weights = true, .averaged_pair = true}},
      {"ema_precise", {.kind = Kind::precise, .averaged_weights = true}},
      {"ema_live", {.kind = Kind::saved, .averaged_weights = true}},
  };
  return all;
}

constexpr const char* kTower = "tower:";
constexpr const char* kMix = "mix:";
constexpr size_t kLongestNumber = 6;  // digits

// The K of "tower:K", or -1.
int64_t tower_of(const std::string& text) {
  const std::string prefix = kTower;
  const std::string digits = text.substr(std::min(prefix.size(), text.size()));
  const bool number = !digits.empty() && digits.size() <= kLongestNumber &&
                      digits.find_first_not_of("0123456789") == std::string::npos &&
                      (digits.size() == 1 || digits[0] != '0');
  return text.starts_with(prefix) && number ? std::stoll(digits) : -1;
}

// The A of "mix:A", or 0 where it is not a number in (0, 1].
double share_of(const std::string& text) {
  const std::string digits = text.substr(std::min(std::string(kMix).size(), text.size()));
  double share = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  return text.starts_with(kMix) && number && share > 0 && share <= 1 ? share : 0;
}

std::string mix_name(double share) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), share).ptr;
  return kMix + std::string(digits.data(), end);
}

}  // namespace

Population read_population(const std::string& text, int64_t precise_batches) {
  if (const int64_t tower = tower_of(text); tower >= 0) return {.kind = Kind::tower, .tower = tower};
  if (const double share = share_of(text); share > 0) return {.kind = Kind::mix, .own_share = share};
  const auto found = plain_ones().find(text);
  if (found == plain_ones().end()) throw Error(Error::Kind::spec, population_problem(text, 0));
  Population population = found->second;
  population.batches = population.kind == Kind::precise ? precise_batches : 0;
  return population;
}

std::string population_problem(const std::string& text, int64_t towers) {
  if (const int64_t tower = tower_of(text); tower >= 0) {
    return tower < towers ? ""
                          : "expected a tower from 0 to " + std::to_string(std::max<int64_t>(towers, 1) - 1) +
                                ", got \"" + text + "\"";
  }
  if (text.starts_with(kMix)) {
    const double share = share_of(text);
    if (share <= 0)
      return "expected mix:A with A, what the sample's own moments weigh, in (0, 1], got \"" + text + "\"";
    const std::string shortest = mix_name(share);  // so that one population has one name
    return text == shortest ? "" : "expected \"" + shortest + "\", got \"" + text + "\"";
  }
  if (text == kAveragedWeights) return "ema is evaluated wherever weight_ema is given; it is not listed";
  if (plain_ones().count(text) > 0) return "";
  const std::vector<std::string> known{"saved", "tower:0", "mean",      "pooled",      "precise",
                                       "batch", "mix:0.1", "own_tower", "ema_precise", "ema_live"};
  const std::string near = nearest(text, known);
  return "expected saved, tower:K, mean, pooled, precise, batch, mix:A, own_tower, ema_precise or ema_live, "
         "got \"" +
         text + "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

std::vector<Carried> carried_for(const std::vector<std::string>& populations, int64_t towers) {
  std::vector<Carried> all;
  const auto carry = [&](const std::string& name) {
    if (std::ranges::find(all, name, &Carried::name) == all.end())
      all.push_back({name, read_population(name)});
  };
  for (const std::string& name : populations) {
    const Population population = read_population(name);
    if (population.is_shadow()) carry(name);
    for (int64_t tower = 0; population.kind == Kind::own_tower && tower < towers; ++tower)
      carry(kTower + std::to_string(tower));
  }
  return all;
}

}  // namespace bnlab
