#include "harness/tasks/held_out.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "harness/support/random.hpp"

namespace bnlab {

std::set<size_t> held_out(const std::vector<std::string>& names, double share) {
  std::map<std::pair<uint64_t, std::string>, std::vector<size_t>> places;  // in the order of the hashes
  for (size_t i = 0; i < names.size(); ++i)
    places[{Stream(0, "held out: " + names[i]).bits(), names[i]}].push_back(i);
  std::set<size_t> held;
  if (places.size() < 2) return held;
  places.erase(std::prev(places.end()));  // the last one always trains
  const auto wanted =
      static_cast<size_t>(std::max(1LL, std::llround(share * static_cast<double>(names.size()))));
  for (const auto& [unused, of_one_name] : places) {
    if (held.size() >= wanted) break;
    held.insert(of_one_name.begin(), of_one_name.end());
  }
  return held;
}

}  // namespace bnlab
