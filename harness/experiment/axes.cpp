#include "harness/experiment/axes.hpp"

#include <algorithm>

#include "harness/experiment/dotted.hpp"

namespace bnlab {
namespace {

bool sets(const Axis& axis, const std::string& top) {
  return std::ranges::any_of(axis.keys, [&](const std::string& key) { return top_level(key) == top; });
}

int loop_depth(const Axis& axis) {
  if (sets(axis, "seed")) {
    return 0;
  }
  return sets(axis, "strategy") ? 2 : 1;
}

// Whether the keys are known and set by no axis before this one.
bool check_keys(const Axis& axis, std::set<std::string>& taken, Mistakes& mistakes) {
  bool fine = true;
  for (const auto& key : axis.keys) {
    if (declarations(key).empty()) {
      mistakes.add(axis.path, unknown_key(key));
      fine = false;
    } else if (!taken.insert(key).second) {
      mistakes.add(axis.path, "the key \"" + key + "\" is set twice");
      fine = false;
    }
  }
  return fine;
}

bool read_positions(const Json& values, Axis& axis, Mistakes& mistakes) {
  if (!values.is_array() || values.empty()) {
    mistakes.add(axis.path, "expected a list of values that is not empty, got " + shown(values));
    return false;
  }
  bool fine = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string path = axis.position_path(i);
    if (axis.keys.size() == 1) {
      axis.positions.push_back({{axis.keys[0], values[i], path}});
      continue;
    }
    if (!values[i].is_array() || values[i].size() != axis.keys.size()) {
      mistakes.add(path, "expected a list of " + std::to_string(axis.keys.size()) +
                             " values, one for each key of the axis, got " + shown(values[i]));
      fine = false;
      continue;
    }
    std::vector<Setting> settings;
    for (size_t k = 0; k < axis.keys.size(); ++k) {
      settings.push_back({axis.keys[k], values[i][k], path + "[" + std::to_string(k) + "]"});
    }
    axis.positions.push_back(std::move(settings));
  }
  return fine;
}

}  // namespace

std::vector<Axis> read_axes(const Json& matrix, Mistakes& mistakes, std::set<std::string>& mistaken) {
  std::vector<Axis> axes;
  std::set<std::string> taken;
  for (const auto& [written, values] : matrix.items()) {
    Axis axis;
    axis.path = key_path("matrix", written);
    axis.keys = split(written, ',');
    const bool keys_fine = check_keys(axis, taken, mistakes);
    const bool values_fine = read_positions(values, axis, mistakes);
    if (keys_fine && values_fine) {
      axes.push_back(std::move(axis));
      continue;
    }
    for (const auto& key : axis.keys) {
      mistaken.insert(top_level(key));
    }
  }
  std::ranges::stable_sort(axes, [](const Axis& a, const Axis& b) { return loop_depth(a) < loop_depth(b); });
  return axes;
}

}  // namespace bnlab
