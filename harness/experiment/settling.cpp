// What runs that tune have scored, and the choice that follows.
#include <algorithm>
#include <set>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

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
