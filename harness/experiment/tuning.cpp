#include "harness/experiment/tuning.hpp"

#include <algorithm>
#include <set>

#include "harness/experiment/document.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/overrides.hpp"
#include "harness/experiment/run.hpp"
#include "harness/mapped.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : object.items()) {
    keys.push_back(key);
  }
  return keys;
}

bool overlap(const std::string& a, const std::string& b) {
  return lies_within(a, b) || lies_within(b, a);
}

// What the matrix moves, or what a choice is made for, cannot be chosen.
void check_grid(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  if (tune.grid.empty()) {
    mistakes.add("tune.grid", "expected keys and the values to choose from, got {}");
  }
  for (const std::string& key : keys_of(tune.grid)) {
    const std::string path = key_path("tune.grid", key);
    for (const std::string& axis : experiment.axes) {
      if (std::ranges::any_of(split(axis, ','), [&](const auto& moved) { return overlap(key, moved); })) {
        mistakes.add(path, "the axis matrix." + axis + " sets it in every run");
      }
    }
    for (const std::string& apart : tune.per) {
      if (overlap(key, apart)) {
        mistakes.add(path, "expected a key outside " + apart + ", for each of which a choice is made");
      }
    }
  }
  for (size_t i = 0; i < tune.per.size(); ++i) {
    if (declarations(tune.per[i]).empty()) {
      mistakes.add("tune.per[" + std::to_string(i) + "]", unknown_key(tune.per[i]));
    }
  }
  for (size_t i = 0; i < tune.seeds.size(); ++i) {
    if (std::ranges::find(experiment.runs, tune.seeds[i], &RunSpec::seed) != experiment.runs.end()) {
      mistakes.add("tune.seeds[" + std::to_string(i) + "]",
                   std::to_string(tune.seeds[i]) + " is a seed of the matrix; choose on others");
    }
  }
}

// The spec of the runs that tune. Rules of `exclude` stay as far as they still match something.
Json spec_of_runs(const Experiment& experiment, const std::string& file, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  Document document{experiment.asked, {}};
  for (const char* key : {"tune", "contrasts", "published", "claim"}) {
    document.value = without(document.value, key);
  }
  document.value["question"] = "Which " + joined(keys_of(tune.grid)) + " suits each " + joined(tune.per) +
                               " of " + experiment.name + "?";
  for (const auto& [key, value] : tune.set.items()) {
    override_key(document, key, value, experiment.file + ": tune.set", mistakes);
  }
  Json& matrix = document.value["matrix"];
  matrix["seed"] = tune.seeds;
  for (const auto& [key, values] : tune.grid.items()) {
    matrix[key] = values;
  }
  mistakes.throw_if_any();
  const Json rules = document.value.value("exclude", Json::array());
  if (!rules.empty()) {
    document.value = without(document.value, "exclude");
    const Experiment all = make_experiment(document.value, "all", file, mistakes);
    Json kept = Json::array();
    for (const Json& rule : rules) {
      if (std::ranges::any_of(all.runs, [&](const RunSpec& run) { return matches(rule, run); })) {
        kept.push_back(rule);
      }
    }
    document.value["exclude"] = kept;
  }
  return document.value;
}

// The images that choose are not those that are measured. A task that reads no files makes others of another
// seed.
void check_images(const Experiment& experiment, const Experiment& tuning, Mistakes& mistakes) {
  for (const RunSpec& run : tuning.runs) {
    const auto same = std::ranges::find(experiment.runs, run.task, &RunSpec::task);
    if (reads_files(run.task) && same != experiment.runs.end()) {
      mistakes.add("tune.set",
                   "expected a task with other test images than the matrix's, such as "
                   "\"task.test_split\": \"val\", got " +
                       shown(experiment.tune->set));
      return;
    }
  }
}

void check_groups(const Experiment& experiment, const Experiment& tuning, Mistakes& mistakes) {
  std::set<std::string> there;
  for (const RunSpec& run : tuning.runs) {
    there.insert(tuned_group(*experiment.tune, run));
  }
  for (const RunSpec& run : experiment.runs) {
    const std::string group = tuned_group(*experiment.tune, run);
    if (!there.contains(group)) {
      mistakes.add("tune.per", "no run that tunes belongs to " + group);
    }
  }
}

}  // namespace

std::string Tuning::sentence() const {
  const auto seeds = mapped(asked.seeds, [](uint64_t seed) { return std::to_string(seed); });
  return asked.metric + " (" + asked.population + " statistics) chooses " + joined(keys_of(asked.grid)) +
         " for each " + joined(asked.per) + ", on " + (seeds.size() == 1 ? "seed " : "seeds ") +
         joined(seeds);
}

std::shared_ptr<const Tuning> make_tuning(const Experiment& experiment, Mistakes& mistakes) {
  check_grid(experiment, mistakes);
  mistakes.throw_if_any();
  const std::string file = experiment.file + ", with what tune sets";
  Mistakes there(file);
  auto tuning = std::make_shared<Tuning>();
  tuning->asked = *experiment.tune;
  tuning->runs = make_experiment(spec_of_runs(experiment, file, there), experiment.name + "-tuning",
                                 experiment.file, there);
  check_images(experiment, tuning->runs, mistakes);
  check_groups(experiment, tuning->runs, mistakes);
  for (const RunSpec& run : tuning->runs.runs) {
    check_measured(experiment.tune->metric, experiment.tune->population, run.resolved, "tune", mistakes);
  }
  mistakes.throw_if_any();
  return tuning;
}

}  // namespace bnlab
