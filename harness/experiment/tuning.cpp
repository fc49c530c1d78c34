#include "harness/experiment/tuning.hpp"

#include <algorithm>
#include <set>

#include "harness/experiment/document.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
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

template <class Member>
auto& entry_of(std::vector<Member>& all, auto is_it, Member fresh) {
  const auto found = std::ranges::find_if(all, is_it);
  return found != all.end() ? *found : all.emplace_back(std::move(fresh));
}

bool is_at_edge(const std::string& key, const TunedGroup& group) {
  const auto all = mapped(group.candidates, [&](const Candidate& each) { return each.setting.at(key); });
  if (!std::ranges::all_of(all, [](const Json& value) { return value.is_number(); })) {
    return false;
  }
  const auto [least, most] = std::ranges::minmax(all);
  const Json& chosen = group.chosen().setting.at(key);
  return least != most && (chosen == least || chosen == most);
}

void choose(TunedGroup& group) {
  for (size_t i = 1; i < group.candidates.size(); ++i) {
    if (group.candidates[i].mean() > group.chosen().mean()) {
      group.best = i;
    }
  }
  for (const auto& [key, unused] : group.chosen().setting.items()) {
    if (is_at_edge(key, group)) {
      group.at_edge.push_back(key);
    }
  }
}

// Components by their labels, texts without quotes.
std::string text_at(const std::string& key, const Json& value) {
  const std::string family = family_at(key);
  return !family.empty() || value.is_string() ? label(value, family) : value.dump();
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

double Candidate::mean() const {
  double sum = 0;
  for (const auto& score : scores) {
    sum += score.value_or(0);
  }
  return sum / static_cast<double>(scores.size());
}

int Candidate::diverged() const {
  return static_cast<int>(
      std::ranges::count_if(scores, [](const auto& score) { return !score.has_value(); }));
}

std::string tuned_group(const Tune& tune, const RunSpec& run) {
  const Json whole = run.with_placement();
  return joined(mapped(tune.per, [&](const std::string& key) {
    const Json* value = find(whole, key);
    const std::string text = value == nullptr ? "none" : text_at(key, *value);
    return key == "strategy" ? text : key + "=" + text;
  }));
}

Json tuned_setting(const Tune& tune, const RunSpec& run) {
  Json setting = Json::object();
  for (const auto& [key, unused] : tune.grid.items()) {
    const Json* value = find(run.resolved, key);
    setting[key] = value == nullptr ? Json() : *value;
  }
  return setting;
}

std::string setting_text(const Json& setting) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : setting.items()) {
    parts.push_back((setting.size() == 1 ? "" : key + "=") + text_at(key, value));
  }
  return joined(parts);
}

void settle(Experiment& experiment, const TuningScores& scores) {
  auto tuning = std::make_shared<Tuning>(*experiment.tuning);
  const Tune& tune = tuning->asked;
  tuning->groups.clear();
  std::set<std::string> counted;  // a run on several placements is one
  for (const RunSpec& run : tuning->runs.runs) {
    const auto score = scores.find(run.id);
    if (score == scores.end()) {
      return;
    }
    if (counted.insert(run.id).second) {
      const std::string name = tuned_group(tune, run);
      const Json setting = tuned_setting(tune, run);
      TunedGroup& group = entry_of<TunedGroup>(
          tuning->groups, [&](const auto& each) { return each.name == name; }, {name, {}, 0, {}});
      entry_of<Candidate>(group.candidates, [&](const auto& each) { return each.setting == setting; },
                          {setting, {}})
          .scores.push_back(score->second);
    }
  }
  std::ranges::for_each(tuning->groups, choose);
  for (RunSpec& run : experiment.runs) {
    Json chosen = run.with_placement();
    const auto group = std::ranges::find(tuning->groups, tuned_group(tune, run), &TunedGroup::name);
    for (const auto& [key, value] : group->chosen().setting.items()) {
      set(chosen, key, value);
    }
    run = make_run(chosen);
  }
  experiment.tuning = tuning;
}

}  // namespace bnlab
