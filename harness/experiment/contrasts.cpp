// The comparisons that a spec declares beforehand, between strategies and with what others have published, checked against
// its matrix.
#include <algorithm>
#include <iterator>

#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/population.hpp"

namespace bnlab {
namespace {

// The label of the strategy that `name` means: a label of the matrix, or a name that one label has; "" if there is
// none. `path` is that of the name.
std::string label_of(const std::string& name, const std::vector<Json>& runs, const std::string& path,
                     Mistakes& mistakes) {
  std::vector<std::string> labels, named;
  for (const auto& run : runs) {
    const std::string text = label(run["strategy"]);
    if (std::ranges::count(labels, text) > 0) {
      continue;
    }
    labels.push_back(text);
    if (run["strategy"]["name"] == name) {
      named.push_back(text);
    }
  }
  if (std::ranges::count(labels, name) > 0) {
    return name;
  }
  if (named.size() == 1) {
    return named[0];
  }
  mistakes.add(path, named.empty()
                         ? "no run has the strategy " + shown(name) + suggestion(name, labels)
                         : shown(name) + " is the name of several strategies" + suggestion("", named));
  return "";
}

// The numbers that a run of the task ends with, beside its costs: see metrics() of harness/tasks/.
std::vector<std::string> metrics_of(const Json& run) {
  std::vector<std::string> metrics = {"images_per_s", "peak_memory_bytes", "peak_rss_bytes",
                                      "class_accuracy"};
  const About* task = find_registered("task", run["task"].value("name", ""));
  const bool pixels = task == nullptr || task->of == Subjects::pixels;
  for (const char* metric :
       pixels ? std::vector{"mean_iou", "pixel_accuracy", "groups"}
              : std::vector{"top1", "motion_accuracy", "direction_accuracy", "scene_accuracy"}) {
    metrics.push_back(metric);
  }
  return metrics;
}

// "" where the run has such a number, else what is wrong with it.
std::string metric_mistake(const std::string& metric, const Json& run) {
  const std::vector<std::string> known = metrics_of(run);
  const bool there =
      metric.empty() || std::ranges::count(known, top_level(metric)) > 0;  // "" is reported already
  return there ? "" : "no run has the metric " + shown(metric) + suggestion(metric, known);
}

// "" where the run is evaluated under the population, else what is wrong with it.
std::string population_mistake(const std::string& population, const Json& run) {
  if (population == kAveragedWeights) {
    return run["weight_ema"].is_null() ? "the runs have no averaged weights: weight_ema is null" : "";
  }
  const std::string problem = population_problem(population, run["towers"]);
  const Json& asked = run["populations"];
  const bool known = !problem.empty() || std::count(asked.begin(), asked.end(), population) > 0;
  return known ? problem : shown(population) + " is not among the populations of the runs, " + shown(asked);
}

void check_cells(const Contrast& contrast, const std::vector<Json>& runs, const std::string& path,
                 Mistakes& mistakes) {
  std::vector<Json> there;
  std::ranges::copy_if(runs, std::back_inserter(there),
                       [&](const Json& run) { return matches(contrast.at, run); });
  if (there.empty()) {
    report_no_match(contrast.at, runs, path + ".at", mistakes);
    return;
  }
  for (const bool above : {false, true}) {
    const std::string& strategy = above ? contrast.above : contrast.strategy;
    const std::string& population = above ? contrast.population_above() : contrast.population;
    bool compared = false;
    for (const auto& run : there) {
      if (label(run["strategy"]) == strategy) {
        compared = true;
        check_measured(contrast.metric, population, run, path, mistakes,
                       above && contrast.above_population ? "above_population" : "population");
      }
    }
    if (!compared) {
      mistakes.add(path + ".at", "no run of " + strategy + " matches");
    }
  }
}

// Whether each part has a type that can be read; the others have been reported.
bool is_readable(const Json& given) {
  const auto is_text = [&](const char* key) { return given.contains(key) && given[key].is_string(); };
  const auto& margin = given.contains("equivalence_margin") ? given["equivalence_margin"] : Json();
  const auto& below = given.contains("above_population") ? given["above_population"] : Json();
  return (below.is_null() || below.is_string()) && is_text("metric") && is_text("strategy") &&
         is_text("above") && is_text("population") && given["at"].is_object() &&
         (margin.is_null() || margin.is_number());
}

// The same for a published number.
bool is_number_of(const Json& given) {
  const auto is = [&](const char* key, auto holds) { return given.contains(key) && holds(given[key]); };
  const auto number = [](const Json& value) { return value.is_number(); };
  const auto text = [](const Json& value) { return value.is_string(); };
  return is("metric", text) && is("from", number) && is("to", number) && is("source", text) &&
         is("population", text) && given["at"].is_object();
}

}  // namespace

void check_measured(const std::string& metric, const std::string& population, const Json& run,
                    const std::string& path, Mistakes& mistakes, const std::string& population_key) {
  if (const std::string mistake = population_mistake(population, run); !mistake.empty()) {
    mistakes.add(path + "." + population_key, mistake);
  }
  if (const std::string unknown = metric_mistake(metric, run); !unknown.empty()) {
    mistakes.add(path + ".metric", unknown);
  }
}

void check_published(const Json& published, const Expansion& expansion, Mistakes& mistakes) {
  for (size_t i = 0; i < published.size(); ++i) {
    if (!published[i].is_object() || !is_number_of(published[i])) {
      continue;
    }
    const std::string path = "published[" + std::to_string(i) + "]";
    const auto number = read_options<Published>(published[i]);
    if (number.from > number.to) {
      mistakes.add(path + ".to",
                   "expected at least from, " + shown(number.from) + ", got " + shown(number.to));
    }
    if (!check_keys(number.at, path + ".at", mistakes) || !expansion.mistaken.empty()) {
      continue;
    }
    bool there = false;
    for (const Json& run : expansion.cells) {
      if (matches(number.at, run)) {
        there = true;
        check_measured(number.metric, number.population, run, path, mistakes);
      }
    }
    if (!there) {
      report_no_match(number.at, expansion.cells, path + ".at", mistakes);
    }
  }
}

std::vector<Contrast> read_contrasts(const Json& contrasts, const Json& written, const Expansion& expansion,
                                     Mistakes& mistakes) {
  std::vector<Contrast> found;
  if (expansion.cells.empty()) {
    return found;  // a mistake in the matrix, which has been reported
  }
  for (size_t i = 0; i < contrasts.size(); ++i) {
    if (!contrasts[i].is_object() || !is_readable(contrasts[i])) {
      continue;
    }
    const std::string path = "contrasts[" + std::to_string(i) + "]";
    auto contrast = read_options<Contrast>(contrasts[i]);
    contrast.as_written = written[i];
    const auto& mistaken = expansion.mistaken;
    bool judged = check_keys(contrast.at, path + ".at", mistakes);
    for (const auto& [key, unused] : contrast.at.items()) {
      judged = judged && mistaken.count(top_level(key)) == 0;
    }
    if (mistaken.count("strategy") == 0) {
      contrast.strategy = label_of(contrast.strategy, expansion.cells, path + ".strategy", mistakes);
      contrast.above = label_of(contrast.above, expansion.cells, path + ".above", mistakes);
      const bool known = !contrast.strategy.empty() && !contrast.above.empty();
      const bool same_population = contrast.population_above() == contrast.population;
      if (known && contrast.strategy == contrast.above && same_population) {
        mistakes.add(path + ".above",
                     "expected another strategy than " + contrast.strategy + ", or another above_population");
      }
      if (known && judged && mistaken.count("populations") == 0 && mistaken.count("towers") == 0) {
        check_cells(contrast, expansion.cells, path, mistakes);
      }
    }
    found.push_back(std::move(contrast));
  }
  return found;
}

}  // namespace bnlab
