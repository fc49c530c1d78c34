// The main table of a report: the numbers that its declared comparisons are about.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <tuple>

#include "harness/report/report.hpp"

namespace bnlab {
namespace {

constexpr size_t kMostRows = 10, kMostColumns = 5;

// The comparisons of the main table: those of the metric, and of strategies or of other keys, that most are
// of; among as many the headline, and strategies.
std::vector<const ContrastResult*> main_contrasts(const ExperimentReport& report) {
  std::vector<const ContrastResult*> most;
  const auto rank = [&](const std::vector<const ContrastResult*>& alike) {
    const Contrast& contrast = alike.front()->contrast;
    return std::tuple(alike.size(), contrast.metric == report.headline, contrast.of_strategies());
  };
  for (const ContrastResult& first : report.contrasts) {
    std::vector<const ContrastResult*> alike;
    for (const ContrastResult& other : report.contrasts)
      if (other.contrast.metric == first.contrast.metric &&
          other.contrast.of_strategies() == first.contrast.of_strategies())
        alike.push_back(&other);
    if (most.empty() || rank(alike) > rank(most)) most = alike;
  }
  return most;
}

// The numbers of the main table: of each row and column what came out at the seeds.
struct MainNumbers {
  std::vector<std::string> rows, columns;
  std::map<std::pair<std::string, std::string>, SeedValues> values;

  void add(const std::string& row, const std::string& column, const SeedValues& found) {
    SeedValues& there = values[{row, column}];
    if (found.size() > there.size()) there = found;
  }
  void add_names(const std::string& row, const std::string& column) {
    if (std::ranges::count(rows, row) == 0) rows.push_back(row);
    if (std::ranges::count(columns, column) == 0) columns.push_back(column);
  }
};

MainNumbers main_numbers(const ExperimentReport& report,
                         const std::vector<const ContrastResult*>& contrasts) {
  MainNumbers numbers;
  for (const ContrastResult* result : contrasts) {
    if (result->sides[0].empty() && result->sides[1].empty()) continue;
    const auto titles = side_titles(result->contrast);
    for (size_t side = 0; side < 2; ++side) {
      numbers.add_names(titles[side], result->group);
      numbers.add(titles[side], result->group, result->sides[side]);
    }
  }
  // What the rows have in the other columns, where nobody compared it.
  if (!contrasts.empty() && contrasts.front()->contrast.metric != report.headline) return numbers;
  for (const ReportCell& cell : report.cells) {
    for (const auto& [population, found] : cell.scores.values) {
      const std::string title = with_statistics(cell.strategy, population);
      if (contrasts.empty() && !found.empty()) numbers.add_names(title, cell.group);
      numbers.add(title, cell.group, found);
    }
  }
  return numbers;
}

// A logarithm is told in per cent.
Measure unit_in_table(const std::string& metric) {
  Measure unit = measure_of(metric);
  if (!unit.is_logarithm) return unit;
  unit.title = "% of the images/s of the run in turn";
  unit.size = 1;
  return unit;
}

// " Read 16x1 as 16 GPUs with 1 image each." of the first name that has a grouping, or " Read 2x1-cpu as 2
// ranks with 1 tower each." where that is a placement; "" where none has.
std::string explained(const std::vector<std::string>& names, const std::string& samples) {
  static const std::regex grouping(R"((?:^|, )(\d+)x(\d+)(-[a-z]+)?(?=[,-]|$))");
  for (const std::string& name : names) {
    std::smatch found;
    if (!std::regex_search(name, found, grouping)) continue;
    const auto count = [](const std::string& number, const std::string& of) {
      return number + " " + (number == "1" ? of.substr(0, of.size() - 1) : of);
    };
    const std::string term = " Read " + found[1].str() + "x" + found[2].str() + found[3].str() + " as ";
    return found[3].matched
               ? term + count(found[1], "ranks") + " with " + count(found[2], "towers") + " each."
               : term + count(found[1], "GPUs") + " with " + count(found[2], samples) + " each.";
  }
  return "";
}

}  // namespace

std::string plus_minus(const Interval& interval, int decimals, double unit, const std::string& sign) {
  if (interval.n == 0) return "-";
  const std::string centre = fixed(interval.mean / unit, decimals);
  return std::isfinite(interval.half_width) ? centre + sign + fixed(interval.half_width / unit, decimals)
                                            : centre;
}

SeedValues per_cent(SeedValues logarithms) {
  for (auto& [seed, value] : logarithms) value = 100 * std::exp(value);
  return logarithms;
}

MainTable main_table(const ExperimentReport& report) {
  const std::vector<const ContrastResult*> contrasts = main_contrasts(report);
  const std::string metric = contrasts.empty() ? report.headline : contrasts.front()->contrast.metric;
  const Measure unit = unit_in_table(metric);
  const bool of_strategies = contrasts.empty() || contrasts.front()->contrast.of_strategies();
  MainNumbers numbers = main_numbers(report, contrasts);
  auto& [rows, columns, values] = numbers;
  const bool turned = columns.size() > kMostColumns && rows.size() <= kMostColumns;
  if (turned) std::swap(rows, columns);
  const auto at = [&](const std::string& row, const std::string& column) {
    const SeedValues& found = values[turned ? std::pair(column, row) : std::pair(row, column)];
    return over_seeds(unit.is_logarithm ? per_cent(found) : found);
  };
  const auto worth = [&](const std::string& row) {
    double sum = 0, n = 0;
    for (const std::string& column : columns) {
      if (const Interval found = at(row, column); found.n > 0) {
        sum += found.mean;
        ++n;
      }
    }
    return n == 0 ? std::numeric_limits<double>::lowest() : (unit.more_is_better ? 1 : -1) * sum / n;
  };
  std::ranges::stable_sort(rows, std::greater(), worth);
  std::string left_out;
  if (rows.size() > kMostRows) {
    left_out += " The nine best of " + std::to_string(rows.size()) + " rows and the last.";
    rows.erase(rows.begin() + kMostRows - 1, rows.end() - 1);
  }
  if (columns.size() > kMostColumns) {
    left_out += " The first five of " + std::to_string(columns.size()) + " columns.";
    columns.resize(kMostColumns);
  }
  TextTable table{{{turned ? "at" : of_strategies ? "strategy" : "setting"}}, {}};
  for (const std::string& column : columns)
    table.columns.push_back({column == "all" ? unit.title : column, true});
  std::set<size_t> seeds;
  for (const std::string& row : rows) {
    table.rows.push_back({row});
    for (const std::string& column : columns) {
      const Interval found = at(row, column);
      table.rows.back().push_back(plus_minus(found, unit.decimals, unit.size));
      if (found.n > 0) seeds.insert(found.n);
    }
  }
  if (seeds.empty()) return {};
  return {table, unit.title + (is_cost(metric) ? "" : ", saved statistics where no others are named") +
                     ": mean \u00b1 half-width of its 95 % interval, n = " +
                     (seeds.size() > 1 ? std::to_string(*seeds.begin()) + " to " : "") +
                     std::to_string(*seeds.rbegin()) + "." + left_out +
                     explained(turned ? rows : columns, report.samples)};
}

}  // namespace bnlab
