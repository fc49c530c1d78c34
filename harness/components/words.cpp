#include "harness/components/words.hpp"

#include <algorithm>

namespace bnlab {

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
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  if (name.size() > kLongestComparedName) return "";
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
  if (!near.empty()) return "; did you mean \"" + near + "\"?";
  return "; known: " + (known.empty() ? "none" : joined(known));
}

std::string joined(const std::vector<std::string>& texts, const std::string& separator) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : separator) + text;
  return all;
}

}  // namespace bnlab
