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
  if (tune.grid.empty() && tune.lengths.empty()) {
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

// Two lengths at least, each twice the one before; nothing else may set how long a run is.
void check_lengths(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  const std::vector<int64_t>& lengths = tune.lengths;
  if (lengths.size() == 1) {
    mistakes.add("tune.lengths", "expected two or more: the longer one shows what doubling gains");
  }
  for (size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] != 2 * lengths[i - 1]) {
      mistakes.add("tune.lengths[" + std::to_string(i) + "]",
                   "expected " + std::to_string(2 * lengths[i - 1]) + ", twice the one before, got " +
                       std::to_string(lengths[i]));
    }
  }
  for (const std::string key : {"steps", "epochs"}) {
    if (!lengths.empty() && tune.grid.contains(key)) {
      mistakes.add(key_path("tune.grid", key), "tune.lengths sets how long the runs are");
    }
    if (!lengths.empty() && tune.set.contains(key)) {
      mistakes.add(key_path("tune.set", key), "tune.lengths sets how long the runs are");
    }
    for (const std::string& axis : experiment.axes) {
      const auto moved = split(axis, ',');
      if (!lengths.empty() && std::ranges::find(moved, key) != moved.end()) {
        mistakes.add("tune.lengths", "the axis matrix." + axis + " sets " + key + " in every run");
      }
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
  document.value["question"] = tune.grid.empty()
                                   ? "How long must " + experiment.name + " train?"
                                   : "Which " + joined(keys_of(tune.grid)) + " suits each " +
                                         joined(tune.per) + " of " + experiment.name +
                                         (tune.lengths.empty() ? "?" : ", and how long must it train?");
  for (const auto& [key, value] : tune.set.items()) {
    override_key(document, key, value, experiment.file + ": tune.set", mistakes);
  }
  Json& matrix = document.value["matrix"];
  matrix["seed"] = tune.seeds;
  for (const auto& [key, values] : tune.grid.items()) {
    matrix[key] = values;
  }
  if (!tune.lengths.empty()) {
    document.value = without(without(document.value, "steps"), "epochs");
    document.value["matrix"]["steps"] = tune.lengths;
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
  group.best_means.push_back(group.chosen().mean());
  for (const auto& [key, unused] : group.chosen().setting.items()) {
    if (is_at_edge(key, group)) {
      group.at_edge.push_back(key);
    }
  }
}

// Whether a run that tunes belongs to the i-th length; all do where the length is not chosen.
bool is_of_length(const Tune& tune, size_t i, const RunSpec& run) {
  return tune.lengths.empty() || run.steps == tune.lengths[i];
}

// What every group chose among the runs of the i-th length; none before the last of their scores.
std::vector<TunedGroup> groups_at(const Tuning& tuning, size_t i, const TuningScores& scores) {
  std::vector<TunedGroup> groups;
  std::set<std::string> counted;  // a run on several placements is one
  for (const RunSpec& run : tuning.runs.runs) {
    if (!is_of_length(tuning.asked, i, run) || !counted.insert(run.id).second) {
      continue;
    }
    const auto score = scores.find(run.id);
    if (score == scores.end()) {
      return {};
    }
    const std::string name = tuned_group(tuning.asked, run);
    const Json setting = tuned_setting(tuning.asked, run);
    auto& group = entry_of<TunedGroup>(groups, [&](const auto& each) { return each.name == name; },
                                       {name, {}, 0, {}, {}});
    entry_of<Candidate>(group.candidates, [&](const auto& each) { return each.setting == setting; },
                        {setting, {}})
        .scores.push_back(score->second);
  }
  std::ranges::for_each(groups, choose);
  return groups;
}

// Names of the groups whose best mean grew by `gain_below` or more from the shorter length to the longer one.
std::vector<std::string> gaining(const Tune& tune, const std::vector<TunedGroup>& shorter,
                                 const std::vector<TunedGroup>& longer) {
  std::vector<std::string> names;
  for (size_t g = 0; g < longer.size(); ++g) {
    if (longer[g].best_means.back() - shorter[g].best_means.back() >= tune.gain_below) {
      names.push_back(longer[g].name);
    }
  }
  return names;
}

// Chooses among the scores that there are. Not settled where one is missing that the choice needs.
void choose(Tuning& tuning, const TuningScores& scores) {
  const Tune& tune = tuning.asked;
  tuning.groups.clear();
  tuning.tried.clear();
  tuning.steps.reset();
  tuning.still_gaining.clear();
  std::vector<TunedGroup> shorter;
  for (size_t i = 0; i < std::max<size_t>(tune.lengths.size(), 1); ++i) {
    std::vector<TunedGroup> groups = groups_at(tuning, i, scores);
    if (groups.empty()) {
      return;
    }
    if (!tune.lengths.empty()) {
      tuning.tried.push_back(tune.lengths[i]);
    }
    for (size_t g = 0; g < shorter.size(); ++g) {
      auto& means = groups[g].best_means;
      means.insert(means.begin(), shorter[g].best_means.begin(), shorter[g].best_means.end());
    }
    tuning.still_gaining = shorter.empty() ? std::vector<std::string>() : gaining(tune, shorter, groups);
    if (!shorter.empty() && tuning.still_gaining.empty()) {  // the shorter length will do
      for (size_t g = 0; g < shorter.size(); ++g) {
        shorter[g].best_means = groups[g].best_means;
      }
      tuning.steps = tune.lengths[i - 1];
      tuning.groups = std::move(shorter);
      return;
    }
    shorter = std::move(groups);
  }
  if (!tune.lengths.empty()) {
    tuning.steps = tune.lengths.back();
  }
  tuning.groups = std::move(shorter);
}

// Components by their labels, texts without quotes.
std::string text_at(const std::string& key, const Json& value) {
  const std::string family = family_at(key);
  return !family.empty() || value.is_string() ? label(value, family) : value.dump();
}

}  // namespace

std::string Tuning::sentence() const {
  const auto seeds = mapped(asked.seeds, [](uint64_t seed) { return std::to_string(seed); });
  const std::string settings =
      asked.grid.empty() ? "" : joined(keys_of(asked.grid)) + " for each " + joined(asked.per);
  const std::string length = asked.lengths.empty() ? "" : "one length of training for all";
  return asked.metric + " (" + asked.population + " statistics) chooses " + settings +
         (settings.empty() || length.empty() ? "" : " and ") + length + ", on " +
         (seeds.size() == 1 ? "seed " : "seeds ") + joined(seeds);
}

std::string Tuning::length_sentence() const {
  const std::string begin = std::to_string(*steps) + " steps: ";
  const std::string least = setting_text({{"", asked.gain_below}});
  if (still_gaining.empty()) {
    return begin + "doubling them gains each " + joined(asked.per) + " less than " + least;
  }
  return begin + "the longest that was tried; the last doubling still gained " + least + " or more for " +
         joined(still_gaining);
}

Json Tuning::length_json() const {
  return steps ? Json{{"chosen", *steps},
                      {"tried", tried},
                      {"gain_below", asked.gain_below},
                      {"still_gaining", still_gaining}}
               : Json();
}

std::shared_ptr<const Tuning> make_tuning(const Experiment& experiment, Mistakes& mistakes) {
  check_grid(experiment, mistakes);
  check_lengths(experiment, mistakes);
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

std::vector<RunSpec> needed_runs(const Tuning& tuning, const TuningScores& scores) {
  Tuning so_far = tuning;
  choose(so_far, scores);
  std::vector<RunSpec> needed = tuning.runs.runs;
  if (const auto& lengths = tuning.asked.lengths; !lengths.empty()) {
    const size_t count = std::max<size_t>(so_far.tried.size() + (so_far.is_settled() ? 0 : 1), 2);
    const int64_t longest = lengths[std::min(count, lengths.size()) - 1];
    std::erase_if(needed, [&](const RunSpec& run) { return run.steps > longest; });
  }
  return needed;
}

void settle(Experiment& experiment, const TuningScores& scores) {
  auto tuning = std::make_shared<Tuning>(*experiment.tuning);
  choose(*tuning, scores);
  if (!tuning->is_settled()) {
    return;
  }
  for (RunSpec& run : experiment.runs) {
    Json chosen = run.with_placement();
    const auto group = std::ranges::find(tuning->groups, tuned_group(tuning->asked, run), &TunedGroup::name);
    for (const auto& [key, value] : group->chosen().setting.items()) {
      set(chosen, key, value);
    }
    if (tuning->steps) {
      set(chosen, "steps", *tuning->steps);
      set(chosen, "epochs", nullptr);
    }
    run = make_run(chosen);
  }
  experiment.tuning = tuning;
}

}  // namespace bnlab
