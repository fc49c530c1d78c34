#include "harness/experiment/tuning.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "harness/experiment/document.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/measures.hpp"
#include "harness/experiment/run.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : object.items()) keys.push_back(key);
  return keys;
}

bool overlap(const std::string& a, const std::string& b) {
  return lies_within(a, b) || lies_within(b, a);
}

// What the matrix moves, or what a choice is made for, cannot be chosen.
void check_grid(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  if (tune.grid.empty() && tune.lengths.empty())
    mistakes.add("tune.grid", "expected keys and the values to choose from, got {}");
  else if (tune.grid.empty() && tune.halvings > 0)
    mistakes.add("tune.halvings", "there is nothing to halve: tune.grid has no settings");
  for (const std::string& key : keys_of(tune.grid)) {
    const std::string path = key_path("tune.grid", key);
    if (declarations(key).empty()) mistakes.add(path, unknown_key(key));
    if (key.ends_with(".name")) {
      const std::string whole = key.substr(0, key.size() - 5);
      mistakes.add(path, "each has options of its own; choose among whole components, \"" + whole +
                             "\": [{\"name\": ...}, ...]");
    }
    for (const std::string& axis : experiment.axes)
      if (std::ranges::any_of(split(axis, ','), [&](const auto& moved) { return overlap(key, moved); }))
        mistakes.add(path, "the axis matrix." + axis + " sets it in every run");
    for (const std::string& apart : tune.per)
      if (overlap(key, apart))
        mistakes.add(path, "expected a key outside " + apart + ", for each of which a choice is made");
  }
  for (size_t i = 0; i < tune.per.size(); ++i)
    if (declarations(tune.per[i]).empty())
      mistakes.add("tune.per[" + std::to_string(i) + "]", unknown_key(tune.per[i]));
  for (size_t i = 0; i < tune.seeds.size(); ++i) {
    const std::string path = "tune.seeds[" + std::to_string(i) + "]";
    if (std::find(tune.seeds.begin(), tune.seeds.begin() + static_cast<std::ptrdiff_t>(i), tune.seeds[i]) !=
        tune.seeds.begin() + static_cast<std::ptrdiff_t>(i)) {
      mistakes.add(path, std::to_string(tune.seeds[i]) + " stands there twice");
    }
    if (std::ranges::find(experiment.runs, tune.seeds[i], &RunSpec::seed) != experiment.runs.end())
      mistakes.add(path, std::to_string(tune.seeds[i]) + " is a seed of the matrix; choose on others");
  }
}

// What tuning sets itself in its runs, nothing else may set there.
void check_set(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  for (const auto& [key, unused] : tune.set.items()) {
    const std::string plain = key.starts_with("matrix.") ? key.substr(7) : key;
    if (plain == "seed")
      mistakes.add(key_path("tune.set", key), "tune.seeds sets the seeds of these runs");
    else if (tune.grid.contains(plain))
      mistakes.add(key_path("tune.set", key), "tune.grid sets it in these runs");
  }
  if (tune.lengths.empty() && experiment.asked.at("tune").contains("gain_below"))
    mistakes.add("tune.gain_below", "has no effect without tune.lengths; add these or leave it out");
  const Measure metric = measure_of(tune.metric);
  if (!metric.more_is_better) {
    mistakes.add("tune.metric", "the highest mean wins, and less memory is better; name another metric");
  } else if (metric.is_logarithm) {
    mistakes.add(
        "tune.metric",
        "a run that diverged counts as 0, which a logarithm may well be below; name another, such as " +
            shown(Json(kImagesPerS)));
  }
}

// What tuning chooses cannot say which runs are compared: a choice would leave some without any.
void check_rules(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  const auto is_chosen = [&](const std::string& key) {
    return (!tune.lengths.empty() && (key == "steps" || key == "epochs")) ||
           std::ranges::any_of(keys_of(tune.grid),
                               [&](const auto& chosen) { return lies_within(key, chosen); });
  };
  const auto check = [&](const std::string& path, const Json& rule) {
    for (const auto& [key, unused] : rule.items())
      if (is_chosen(key))
        mistakes.add(key_path(path, key), "tuning chooses it, and may choose otherwise; leave it out");
  };
  for (size_t i = 0; i < experiment.contrasts.size(); ++i) {
    const std::string path = "contrasts[" + std::to_string(i) + "].";
    check(path + "at", experiment.contrasts[i].at);
    check(path + "runs", experiment.contrasts[i].runs);
    check(path + "above_runs", experiment.contrasts[i].above_runs);
  }
  for (size_t i = 0; i < experiment.published.size(); ++i)
    check("published[" + std::to_string(i) + "].at", experiment.published[i].at);
}

// Two lengths at least, each twice the one before; nothing else may set how long a run is.
void check_lengths(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  const std::vector<int64_t>& lengths = tune.lengths;
  if (lengths.size() == 1)
    mistakes.add("tune.lengths", "expected two or more: the longer one shows what doubling gains");
  for (size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] != 2 * lengths[i - 1]) {
      mistakes.add("tune.lengths[" + std::to_string(i) + "]",
                   "expected " + std::to_string(2 * lengths[i - 1]) + ", twice the one before, got " +
                       std::to_string(lengths[i]));
    }
  }
  if (!lengths.empty() && tune.halvings >= static_cast<int>(lengths.size())) {
    mistakes.add("tune.halvings", "expected at most " + std::to_string(lengths.size() - 1) +
                                      ", one between two of tune.lengths, got " +
                                      std::to_string(tune.halvings));
  }
  for (const std::string key : {"steps", "epochs"}) {
    if (!lengths.empty() && tune.grid.contains(key))
      mistakes.add(key_path("tune.grid", key), "tune.lengths sets how long the runs are");
    if (!lengths.empty() && tune.set.contains(key))
      mistakes.add(key_path("tune.set", key), "tune.lengths sets how long the runs are");
    for (const std::string& axis : experiment.axes) {
      const auto moved = split(axis, ',');
      if (!lengths.empty() && std::ranges::find(moved, key) != moved.end())
        mistakes.add("tune.lengths", "the axis matrix." + axis + " sets " + key + " in every run");
    }
  }
}

// The lengths of the runs that tune: those asked for, or what halving makes of the steps that all of them
// have.
std::vector<int64_t> lengths_of(const Tune& tune, const Document& runs, const std::string& file,
                                Mistakes& mistakes) {
  if (tune.halvings == 0 || !tune.lengths.empty()) return tune.lengths;
  const Experiment all = make_experiment(without(runs.value, "exclude"), "all", file, mistakes);
  const int64_t steps = all.runs.front().steps;
  const bool apart = std::ranges::any_of(all.runs, [&](const RunSpec& run) {
    return run.steps != steps || !run.resolved.at("epochs").is_null();
  });
  const int64_t shortest = steps >> tune.halvings;
  if (apart || shortest < 1) {
    mistakes.add("tune.halvings", apart ? "expected `steps`, the same for all runs, or tune.lengths"
                                        : "expected steps that can be halved so often, got " +
                                              std::to_string(steps) + " steps");
    mistakes.throw_if_any();
  }
  std::vector<int64_t> lengths;
  for (int halving = tune.halvings; halving >= 0; --halving) lengths.push_back(steps >> halving);
  return lengths;
}

// The spec of the runs that tune. Rules of `exclude` stay as far as they still match something.
Json spec_of_runs(const Experiment& experiment, const std::string& file, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  Document document{experiment.asked, {}};
  for (const char* key : {"tune", "contrasts", "published", "claim"})
    document.value = without(document.value, key);
  document.value["question"] = tune.grid.empty()
                                   ? "How long must " + experiment.name + " train?"
                                   : "Which " + joined(keys_of(tune.grid)) + " suits each " +
                                         joined(tune.per) + " of " + experiment.name +
                                         (tune.lengths.empty() ? "?" : ", and how long must it train?");
  std::vector<Override> settings;
  for (const auto& [key, value] : tune.set.items()) settings.emplace_back(key, value);
  override_keys(document, std::move(settings), experiment.file + ": tune.set", mistakes);
  Json& matrix = document.value["matrix"];
  matrix["seed"] = tune.seeds;
  for (const auto& [key, values] : tune.grid.items()) matrix[key] = values;
  mistakes.throw_if_any();
  if (const auto lengths = lengths_of(tune, document, file, mistakes); !lengths.empty()) {
    document.value = without(without(document.value, "steps"), "epochs");
    document.value["matrix"]["steps"] = lengths;
  }
  const Json rules = document.value.value("exclude", Json::array());
  if (!rules.empty()) {
    document.value = without(document.value, "exclude");
    const Experiment all = make_experiment(document.value, "all", file, mistakes);
    Json kept = Json::array();
    for (const Json& rule : rules)
      if (std::ranges::any_of(all.runs, [&](const RunSpec& run) { return matches(rule, run); }))
        kept.push_back(rule);
    document.value["exclude"] = kept;
  }
  return document.value;
}

// Whether two values of a key leave no image in common. null is what the data folder has, which may be the
// other's; an empty list is all.
bool choose_others(const Json& one, const Json& other) {
  if (one.is_null() || other.is_null()) return false;
  if (!one.is_array() || !other.is_array()) return one != other;
  const auto is_there = [&](const Json& each) { return std::ranges::find(other, each) != other.end(); };
  return !one.empty() && !other.empty() && std::ranges::none_of(one, is_there);
}

// Whether two tasks that read files test other images: a key differs that says which. Keys of training, or of
// how large the images are, change nothing of it.
bool tests_others(const Json& one, const Json& other) {
  static const std::set<std::string> of_sizes = {"test_size", "test_multiple", "test_share"};
  const auto says_which = [](const std::string& key) {
    return key == "name" || key == "root" || (key.starts_with("test_") && !of_sizes.contains(key));
  };
  return std::ranges::any_of(keys_of(one), [&](const std::string& key) {
    const Json* theirs = find(other, key);
    return says_which(key) && (theirs == nullptr || choose_others(*find(one, key), *theirs));
  });
}

// The images that choose are not those that are measured. A task that reads no files makes others of another
// seed.
void check_images(const Experiment& experiment, const Experiment& tuning, Mistakes& mistakes) {
  for (const RunSpec& run : tuning.runs) {
    if (reads_files(run.task) && std::ranges::any_of(experiment.runs, [&](const RunSpec& measured) {
          return !tests_others(run.task, measured.task);
        })) {
      mistakes.add("tune.set",
                   "expected a task with other test images than the matrix's, such as "
                   "\"task.test_split\": \"val\" where the matrix names \"test\", got " +
                       shown(experiment.tune->set));
      return;
    }
  }
}

void check_groups(const Experiment& experiment, const Experiment& tuning, Mistakes& mistakes) {
  std::set<std::string> there;
  for (const RunSpec& run : tuning.runs) there.insert(tuned_group(*experiment.tune, run));
  for (const RunSpec& run : experiment.runs) {
    const std::string group = tuned_group(*experiment.tune, run);
    if (!there.contains(group)) mistakes.add("tune.per", "no run that tunes belongs to " + group);
  }
}

// What may be chosen agrees with every run of the matrix.
void check_choices(const Experiment& experiment, const Tuning& tuning, Mistakes& mistakes) {
  using Choice = std::pair<std::string, std::optional<int64_t>>;  // a setting, dumped, and steps
  std::map<std::string, std::set<Choice>> choices;                // by group
  for (const RunSpec& run : tuning.runs.runs) {
    const auto steps = tuning.asked.lengths.empty() ? std::nullopt : std::optional(run.steps);
    choices[tuned_group(tuning.asked, run)].emplace(tuned_setting(tuning.asked, run).dump(), steps);
  }
  std::set<std::string> looked_at;
  for (const RunSpec& run : experiment.runs) {
    if (!looked_at.insert(without(run.with_placement(), "seed").dump()).second) continue;
    for (const auto& [setting, steps] : choices[tuned_group(tuning.asked, run)]) {
      const Json chosen = Json::parse(setting);
      Problems problems;
      check_agreement(with_choice(run, chosen, steps), {}, problems);
      const std::string choice =
          setting_text(chosen) + (steps ? " and " + std::to_string(*steps) + " steps" : "");
      for (const auto& [path, message] : problems.found()) {
        mistakes.add("tune", "might choose " + choice + ", with which runs such as " + run.id +
                                 " cannot be: " + path + ": " + message);
      }
    }
  }
}

// The label of a strategy that tuning changes must become one other, or a comparison would fall apart.
void check_labels(const Experiment& experiment, Mistakes& mistakes) {
  const Tune& tune = *experiment.tune;
  const auto keys = keys_of(tune.grid);
  if (std::ranges::none_of(keys, [](const auto& key) { return top_level(key) == "strategy"; })) return;
  for (size_t i = 0; i < experiment.contrasts.size(); ++i) {
    const Contrast& contrast = experiment.contrasts[i];
    if (!contrast.of_strategies()) continue;
    for (const std::string& strategy : {contrast.strategy, contrast.above}) {
      std::set<std::string> groups;
      for (const RunSpec& run : experiment.runs)
        if (label(run.strategy) == strategy && matches(contrast.at, run))
          groups.insert(tuned_group(tune, run));
      if (groups.size() > 1) {
        mistakes.add("contrasts[" + std::to_string(i) + "].at",
                     "tune.grid chooses options of " + strategy + " for each of " +
                         joined(std::vector(groups.begin(), groups.end()), "; ") +
                         " apart; declare a comparison for each, with " + joined(tune.per) + " in at");
      }
    }
  }
}

// Components by their labels, texts without quotes.
std::string text_at(const std::string& key, const Json& value) {
  const std::string family = family_at(key);
  return !family.empty() || value.is_string() ? label(value, family) : value.dump();
}

}  // namespace

std::string Tuning::measure() const {
  return asked.metric + " (" + asked.population + " statistics) ";
}

std::string Tuning::sentence() const {
  const auto seeds = mapped(asked.seeds, [](uint64_t seed) { return std::to_string(seed); });
  const std::string settings =
      asked.grid.empty() ? "" : joined(keys_of(asked.grid)) + " for each " + joined(asked.per);
  const std::string length = asked.lengths.empty() ? "" : "one length of training for all";
  const std::string halving = asked.halvings == 0
                                  ? ""
                                  : ". Tried are " +
                                        joined(mapped(lengths, [](int64_t n) { return std::to_string(n); })) +
                                        " steps. The better half of the settings goes on from the first" +
                                        (asked.halvings == 1 ? "" : " " + std::to_string(asked.halvings));
  return measure() + "chooses " + settings + (settings.empty() || length.empty() ? "" : " and ") + length +
         ", on " + (seeds.size() == 1 ? "seed " : "seeds ") + joined(seeds) + halving;
}

std::string Tuning::length_sentence() const {
  const std::string begin = std::to_string(*steps) + " steps";
  const std::string least = setting_text({{"", asked.gain_below}});
  if (still_gaining.empty())
    return begin + ": doubling them gains each " + joined(asked.per) + " less than " + least;
  return begin + ", the longest that was tried. The last doubling still gained " + least + " or more for " +
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
  check_set(experiment, mistakes);
  check_lengths(experiment, mistakes);
  check_rules(experiment, mistakes);
  mistakes.throw_if_any();
  const std::string file = experiment.file + ", with what tune sets";
  Mistakes there(file);
  auto tuning = std::make_shared<Tuning>();
  tuning->asked = *experiment.tune;
  tuning->runs = make_experiment(spec_of_runs(experiment, file, there), experiment.name + "-tuning",
                                 experiment.file, there);
  const auto found = tuning->runs.asked.at("matrix").find("steps");
  if (found != tuning->runs.asked.at("matrix").end() &&
      (!tuning->asked.lengths.empty() || tuning->asked.halvings > 0)) {
    tuning->lengths = found->get<std::vector<int64_t>>();
  }
  check_images(experiment, tuning->runs, mistakes);
  check_groups(experiment, tuning->runs, mistakes);
  mistakes.throw_if_any();
  check_choices(experiment, *tuning, mistakes);
  check_labels(experiment, mistakes);
  for (const RunSpec& run : tuning->runs.runs)
    check_measured(experiment.tune->metric, experiment.tune->population, run.resolved, "tune", mistakes);
  mistakes.throw_if_any();
  return tuning;
}

std::string tuned_group(const Tune& tune, const RunSpec& run) {
  return joined(mapped(tune.per, [&](const std::string& key) {
    const std::string text = text_at(key, run.value_at(key));
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

Json with_choice(const RunSpec& run, const Json& setting, std::optional<int64_t> steps) {
  Json chosen = run.with_placement();
  for (const auto& [key, value] : setting.items()) set(chosen, key, value);
  if (steps) {
    set(chosen, "steps", *steps);
    set(chosen, "epochs", nullptr);
  }
  return chosen;
}

std::string setting_text(const Json& setting) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : setting.items())
    parts.push_back((setting.size() == 1 ? "" : key + "=") + text_at(key, value));
  return joined(parts);
}

}  // namespace bnlab
