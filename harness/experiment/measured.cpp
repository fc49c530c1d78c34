// The numbers that runs end with: whether a spec names one that they have, and what others have published of
// them.
#include <algorithm>
#include <array>

#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/measures.hpp"
#include "harness/population.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

// A key whose value is wrong has been reported, and the run lacks it.
bool is_null(const Json& run, const char* key) {
  return run.contains(key) && run[key].is_null();
}

// The numbers that a run of the task ends with, beside its costs: see metrics() of harness/tasks/.
std::vector<std::string> metrics_of(const Json& run) {
  std::vector<std::string> metrics;
  for (const Measure& measure : measures())
    if (measure.in_specs) metrics.push_back(measure.key);
  metrics.push_back("class_accuracy");
  const Json task = run.value("task", Json());  // where the spec's is unknown, what it says; it may have none
  const bool known = find_registered("task", name_in(task)) != nullptr;
  const bool pixels = !known || facts_of<TaskFacts>(task).labelled == Labelled::pixels;
  for (const char* metric :
       pixels ? std::vector{"mean_iou", "mean_dice", "pixel_accuracy", "groups"}
              : std::vector{"top1", "motion_accuracy", "direction_accuracy", "scene_accuracy"}) {
    metrics.push_back(metric);
  }
  return metrics;
}

// "groups.0006R0.mean_iou"; whether there is such a group the data say.
bool is_of_a_group(const std::string& metric) {
  return std::ranges::any_of(std::array{".mean_iou", ".pixel_accuracy"}, [&](const char* ending) {
    return metric.starts_with("groups.") && metric.ends_with(ending) &&
           metric.size() > std::string("groups.").size() + std::string(ending).size();
  });
}

// "" where the run has such a number, else what is wrong with it.
std::string metric_mistake(const std::string& metric, const Json& run) {
  const std::vector<std::string> known = metrics_of(run);
  const bool there =
      metric.empty() || std::ranges::count(known, top_level(metric)) > 0;  // "" is reported already
  if (metric.starts_with("groups") && !is_of_a_group(metric))
    return "expected groups.NAME.mean_iou or groups.NAME.pixel_accuracy, got " + shown(metric);
  if (measure_of(metric).is_logarithm && is_null(run, "timing"))
    return "the runs are timed beside no other: timing is null";
  return there ? "" : "no run has the metric " + shown(metric) + suggestion(metric, known);
}

// "" where the run is evaluated under the population, else what is wrong with it.
std::string population_mistake(const std::string& population, const Json& run) {
  if (population == kAveragedWeights)
    return is_null(run, "weight_ema") ? "the runs have no averaged weights: weight_ema is null" : "";
  const std::string problem = population_problem(population, run["towers"]);
  const Json& asked = run["populations"];
  const bool known = !problem.empty() || std::count(asked.begin(), asked.end(), population) > 0;
  return known ? problem : shown(population) + " is not among the populations of the runs, " + shown(asked);
}

// Whether each part of a published number has a type that can be read; the others have been reported.
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
  if (const std::string mistake = population_mistake(population, run); !mistake.empty())
    mistakes.add(path + "." + population_key, mistake);
  if (const std::string unknown = metric_mistake(metric, run); !unknown.empty())
    mistakes.add(path + ".metric", unknown);
}

void check_published(const Json& published, const Expansion& expansion, Mistakes& mistakes) {
  for (size_t i = 0; i < published.size(); ++i) {
    if (!published[i].is_object() || !is_number_of(published[i])) continue;
    const std::string path = "published[" + std::to_string(i) + "]";
    const auto number = read_options<Published>(published[i]);
    if (number.from > number.to) {
      mistakes.add(path + ".to",
                   "expected at least from, " + shown(number.from) + ", got " + shown(number.to));
    }
    if (!check_keys(number.at, path + ".at", mistakes) || !expansion.mistaken.empty()) continue;
    bool there = false;
    for (const Json& run : expansion.cells) {
      if (matches(number.at, run)) {
        there = true;
        check_measured(number.metric == kRelativeImagesPerS ? kImagesPerS : number.metric, number.population,
                       run, path, mistakes);
      }
    }
    if (!there) report_no_match(number.at, expansion.cells, path + ".at", mistakes);
  }
}

}  // namespace bnlab
