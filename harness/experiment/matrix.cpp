#include "harness/experiment/matrix.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/timing.hpp"

namespace bnlab {
namespace {

// One value that an axis gives one key.
struct Setting {
  std::string key;  // "strategy"
  Json value;
  std::string path;  // where it was written: "matrix.strategy[2]"
};

// The axes of a matrix: {"towers,batch_per_tower": [[16, 1], [8, 2]], "strategy": ["sync", "none"]}.
struct Axis {
  std::string path;                             // "matrix.strategy"
  std::vector<std::string> keys;                // more than one where keys move together
  std::vector<std::vector<Setting>> positions;  // one setting per key

  std::string position_path(size_t position) const { return path + "[" + std::to_string(position) + "]"; }
};

bool sets(const Axis& axis, const std::string& top) {
  return std::ranges::any_of(axis.keys, [&](const std::string& key) { return top_level(key) == top; });
}

int loop_depth(const Axis& axis) {
  if (sets(axis, "seed")) return 0;
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
    for (size_t k = 0; k < axis.keys.size(); ++k)
      settings.push_back({axis.keys[k], values[i][k], path + "[" + std::to_string(k) + "]"});
    axis.positions.push_back(std::move(settings));
  }
  return fine;
}

// The axes in the order of the loops: seeds outermost, strategies innermost, others in file order.
// An axis with a mistake is reported and left out; its keys' top levels go to `mistaken`.
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
    for (const auto& key : axis.keys) mistaken.insert(top_level(key));
  }
  std::ranges::stable_sort(axes, [](const Axis& a, const Axis& b) { return loop_depth(a) < loop_depth(b); });
  return axes;
}

constexpr size_t kMostRuns = 10000;

struct Cell {
  Json run;                      // resolved, with "placement"; at best in part where there are mistakes
  std::vector<size_t> position;  // on each axis
  std::vector<Setting> settings;
  bool complete = true;   // each value is fine by itself
  Problems disagreement;  // between values
};

// A mistake of a cell lies where the value was written: in the axis that set it, if any did.
std::string written_at(const std::string& path, const std::vector<Setting>& settings) {
  const Setting* nearest_setting = nullptr;
  for (const auto& setting : settings) {
    if (lies_within(path, setting.key) &&
        (nearest_setting == nullptr || setting.key.size() > nearest_setting->key.size())) {
      nearest_setting = &setting;
    }
  }
  return nearest_setting == nullptr ? path : nearest_setting->path + path.substr(nearest_setting->key.size());
}

class Matrix {
 public:
  Matrix(const Json& base, const Json& exclude, Mistakes& mistakes)
      : base_(base), exclude_(exclude), mistakes_(mistakes) {}

  Expansion expand(const Json& matrix) {
    axes_ = read_axes(matrix, mistakes_, broken_axes_);
    found_.mistaken = broken_axes_;
    check_overridden();
    read_rules();
    resolve_what_stays();
    std::vector<size_t> position(axes_.size(), 0);
    if (fits()) {
      do {
        add(cell_at(position));
      } while (advance(position));
      check_rules();
      share_worlds(found_.runs);
    }
    return std::move(found_);
  }

 private:
  bool fits() {
    size_t runs = 1;
    for (const auto& axis : axes_) {
      runs *= axis.positions.size();
      if (runs > kMostRuns) {
        mistakes_.add("matrix", "more than " + std::to_string(kMostRuns) + " runs");
        return false;
      }
    }
    return true;
  }

  // The next position, last axis fastest; false after the last.
  bool advance(std::vector<size_t>& position) const {
    for (size_t a = axes_.size(); a-- > 0;) {
      if (++position[a] < axes_[a].positions.size()) return true;
      position[a] = 0;
    }
    return false;
  }

  // Values that every cell replaces are still part of the spec, and checked.
  void check_overridden() {
    for (const auto& axis : axes_) {
      for (const auto& key : axis.keys) {
        const Json* value = find(base_, key);
        if (value == nullptr) continue;
        std::optional<Problems> least;
        for (const Parameter* declared : declarations(key)) {
          Parameter parameter = *declared;
          parameter.required = false;
          const size_t dot = key.rfind('.');
          Problems problems;
          resolve({parameter}, Json{{parameter.name, *value}},
                  dot == std::string::npos ? "" : key.substr(0, dot), problems);
          if (!least || problems.empty()) least = problems;
        }
        mistakes_.add(*least);
      }
    }
  }

  // The keys that no axis sets are the same in every cell, and are resolved once.
  void resolve_what_stays() {
    std::vector<Parameter> staying;
    for (const Parameter& parameter : run_parameters()) {
      const bool varies =
          std::ranges::any_of(axes_, [&](const Axis& axis) { return sets(axis, parameter.name); });
      (varies ? varying_ : staying).push_back(parameter);
    }
    const Json stays = resolve(staying, part_of(base_, staying), "", problems_that_stay_);
    for (const Parameter& parameter : run_parameters())
      frame_[parameter.name] = stays.value(parameter.name, Json());
    for (const Parameter& parameter : staying)
      if (!stays.contains(parameter.name)) frame_.erase(parameter.name);
  }

  static Json part_of(const Json& run, const std::vector<Parameter>& parameters) {
    Json part = Json::object();
    for (const Parameter& parameter : parameters)
      if (const auto found = run.find(parameter.name); found != run.end()) part[parameter.name] = *found;
    return part;
  }

  // The whole run, its keys in the order of their declarations.
  Json resolved(const Json& varying, Problems& problems) const {
    Json run = frame_;
    problems = problems_that_stay_;
    Json others = resolve(varying_, varying, "", problems);
    for (const Parameter& parameter : varying_)
      if (const auto found = others.find(parameter.name); found != others.end())
        run[parameter.name] = std::move(*found);
      else
        run.erase(parameter.name);
    return run;
  }

  Cell cell_at(const std::vector<size_t>& position) {
    Cell cell;
    cell.position = position;
    for (size_t a = 0; a < axes_.size(); ++a) {
      const auto& settings = axes_[a].positions[position[a]];
      cell.settings.insert(cell.settings.end(), settings.begin(), settings.end());
    }
    // A whole is set before its parts: "strategy", then "strategy.momentum".
    std::ranges::stable_sort(cell.settings, [](const Setting& a, const Setting& b) {
      return std::ranges::count(a.key, '.') < std::ranges::count(b.key, '.');
    });
    Json written = part_of(base_, varying_);
    for (const auto& setting : cell.settings) set(written, setting.key, setting.value);
    Problems problems;
    Json run = resolved(written, problems);
    check_agreement(run, problems, cell.disagreement);
    cell.run = normalised(std::move(run));
    cell.complete = problems.empty();
    blame(problems, cell);
    return cell;
  }

  // Reports a cell's mistakes, except those that follow from an axis that could not be read.
  void blame(const Problems& problems, const Cell& cell) {
    for (const auto& [path, message] : problems.found()) {
      if (broken_axes_.count(top_level(path)) == 0) mistakes_.add(written_at(path, cell.settings), message);
      found_.mistaken.insert(top_level(path));
    }
  }

  void add(Cell cell) {
    const std::optional<size_t> rule = matching_rule(cell.run);
    if (rule) {
      if (cell.complete) found_.excluded.push_back({run_id(cell.run), *rule});
      excluded_cells_.push_back(std::move(cell.run));
      return;
    }
    if (broken_axes_.empty()) blame(cell.disagreement, cell);
    if (cell.complete && cell.disagreement.empty()) {
      found_.runs.push_back(make_run(cell.run));
      check_unique(found_.runs.back(), cell);
    }
    found_.cells.push_back(std::move(cell.run));
  }

  void check_unique(const RunSpec& run, const Cell& cell) {
    const auto key = std::make_tuple(run.id, run.ranks, run.device, run.exchange);
    const auto [first, is_new] = first_.emplace(key, cell.position);
    if (is_new) return;
    std::vector<std::string> here, there;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (cell.position[a] != first->second[a]) {
        here.push_back(axes_[a].position_path(cell.position[a]));
        there.push_back(axes_[a].position_path(first->second[a]));
      }
    }
    mistakes_.add(joined(here, " with "), "gives the same run as " + joined(there, " with "));
  }

  void read_rules() {
    for (size_t i = 0; i < exclude_.size(); ++i) {
      const std::string path = rule_path(i);
      const bool usable = exclude_[i].is_object();  // otherwise reported with the spec's other types
      if (usable && exclude_[i].empty()) mistakes_.add(path, "expected keys and values to match, got {}");
      rule_is_usable_.push_back(usable && !exclude_[i].empty() && check_keys(exclude_[i], path, mistakes_));
    }
    rule_removed_.assign(exclude_.size(), 0);
  }

  std::optional<size_t> matching_rule(const Json& run) {
    for (size_t i = 0; i < exclude_.size(); ++i) {
      if (rule_is_usable_[i] && matches(exclude_[i], run)) {
        ++rule_removed_[i];
        return i;
      }
    }
    return std::nullopt;
  }

  void check_rules() {
    for (size_t i = 0; i < exclude_.size(); ++i) {
      if (!rule_is_usable_[i] || rule_removed_[i] > 0 || names_mistaken(exclude_[i])) continue;
      std::vector<Json> all = found_.cells;
      all.insert(all.end(), excluded_cells_.begin(), excluded_cells_.end());
      if (std::ranges::any_of(all, [&](const Json& run) { return matches(exclude_[i], run); }))
        mistakes_.add(rule_path(i), "removes nothing: earlier rules have removed all runs that it matches");
      else
        report_no_match(exclude_[i], all, rule_path(i), mistakes_);
    }
    if (found_.cells.empty()) mistakes_.add("exclude", "removes all runs");
  }

  bool names_mistaken(const Json& rule) const {
    return std::any_of(rule.items().begin(), rule.items().end(),
                       [&](const auto& entry) { return found_.mistaken.count(top_level(entry.key())) > 0; });
  }

  static std::string rule_path(size_t rule) { return "exclude[" + std::to_string(rule) + "]"; }

  const Json& base_;
  const Json& exclude_;
  Mistakes& mistakes_;
  std::vector<Axis> axes_;
  std::set<std::string> broken_axes_;
  std::vector<Parameter> varying_;  // declarations of what the axes set
  Json frame_ = Json::object();     // a run: resolved, but null for what the axes set
  Problems problems_that_stay_;
  std::vector<bool> rule_is_usable_;
  std::vector<size_t> rule_removed_;
  std::vector<Json> excluded_cells_;
  std::map<std::tuple<std::string, std::optional<int>, std::optional<Device>, std::optional<Exchange>>,
           std::vector<size_t>>
      first_;
  Expansion found_;
};

}  // namespace

Expansion expand(const Json& base, const Json& matrix, const Json& exclude, Mistakes& mistakes) {
  return Matrix(base, exclude, mistakes).expand(matrix);
}

}  // namespace bnlab
