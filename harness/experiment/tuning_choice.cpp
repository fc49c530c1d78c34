// What follows from the scores of the runs that tune: round by round, a round for each length, which runs the
// choice still needs, and what it is.
#include <algorithm>
#include <numeric>
#include <set>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

template <class Member>
auto& entry_of(std::vector<Member>& all, auto is_it, Member fresh) {
  const auto found = std::ranges::find_if(all, is_it);
  return found != all.end() ? *found : all.emplace_back(std::move(fresh));
}

bool is_at_edge(const std::string& key, const TunedGroup& group) {
  const auto all = mapped(group.candidates, [&](const Candidate& each) { return each.setting.at(key); });
  if (!std::ranges::all_of(all, [](const Json& value) { return value.is_number(); })) return false;
  const auto [least, most] = std::ranges::minmax(all);
  const Json& chosen = group.chosen().setting.at(key);
  return least != most && (chosen == least || chosen == most);
}

// Those that were left out come after the others.
bool is_better(const Candidate& a, const Candidate& b) {
  return a.dropped_after.has_value() != b.dropped_after.has_value() ? b.dropped_after.has_value()
                                                                    : a.mean() > b.mean();
}

void choose(TunedGroup& group) {
  for (size_t i = 1; i < group.candidates.size(); ++i)
    if (is_better(group.candidates[i], group.chosen())) group.best = i;
  group.best_means = {group.chosen().mean()};
  for (const auto& [key, unused] : group.chosen().setting.items())
    if (is_at_edge(key, group)) group.at_edge.push_back(key);
}

// The runs of one length: what every group chose among them, and which groups' best means grew by
// `gain_below` or more since the length before.
struct Round {
  std::vector<TunedGroup> groups;
  std::vector<std::string> gaining;
};

size_t round_count(const Tuning& tuning) {
  return std::max<size_t>(tuning.lengths.size(), 1);
}

// Leaves out the worse half; of equal ones those that stand last in the grid.
void halve(TunedGroup& group, int64_t steps) {
  std::vector<size_t> order(group.candidates.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return is_better(group.candidates[a], group.candidates[b]); });
  const auto left =
      std::ranges::count_if(group.candidates, [](const Candidate& each) { return !each.dropped_after; });
  for (auto i = (left + 1) / 2; i < left; ++i) group.candidates[order[i]].dropped_after = steps;
}

// The candidates of the i-th round, without scores but for those that were left out before; none where that
// is not known yet, or for the first.
std::vector<TunedGroup> entrants(const Tuning& tuning, const std::vector<Round>& rounds, size_t i) {
  std::vector<TunedGroup> groups;
  if (i == 0 || rounds.size() < i) return groups;
  for (TunedGroup group : rounds[i - 1].groups) {
    if (static_cast<int>(i) <= tuning.asked.halvings) halve(group, tuning.lengths[i - 1]);
    for (Candidate& candidate : group.candidates)
      if (!candidate.dropped_after) candidate.scores.clear();
    groups.push_back({.name = group.name, .candidates = group.candidates});
  }
  return groups;
}

// Whether a run belongs to the i-th round: it has its length, and its setting was not left out.
bool takes_part(const Tuning& tuning, const std::vector<TunedGroup>& entrants, size_t i, const RunSpec& run) {
  if (!tuning.lengths.empty() && run.steps != tuning.lengths[i]) return false;
  const auto group = std::ranges::find(entrants, tuned_group(tuning.asked, run), &TunedGroup::name);
  if (group == entrants.end()) return true;
  const Json setting = tuned_setting(tuning.asked, run);
  const auto candidate = std::ranges::find(group->candidates, setting, &Candidate::setting);
  return candidate == group->candidates.end() || !candidate->dropped_after;
}

// What every group chose in the i-th round; none before the last of its scores.
std::vector<TunedGroup> groups_of_round(const Tuning& tuning, const std::vector<Round>& rounds, size_t i,
                                        const TuningScores& scores) {
  const std::vector<TunedGroup> entered = entrants(tuning, rounds, i);
  std::vector<TunedGroup> groups = entered;
  std::set<std::string> counted;  // a run on several placements is one
  for (const RunSpec& run : tuning.runs.runs) {
    if (!takes_part(tuning, entered, i, run) || !counted.insert(run.id).second) continue;
    const auto score = scores.find(run.id);
    if (score == scores.end()) return {};
    const std::string name = tuned_group(tuning.asked, run);
    const Json setting = tuned_setting(tuning.asked, run);
    auto& group =
        entry_of<TunedGroup>(groups, [&](const auto& each) { return each.name == name; }, {.name = name});
    entry_of<Candidate>(group.candidates, [&](const auto& each) { return each.setting == setting; },
                        {setting, {}})
        .scores.push_back(score->second);
  }
  std::ranges::for_each(groups, choose);
  return groups;
}

bool is_enough(const Tuning& tuning, const std::vector<Round>& rounds) {
  const bool chooses_length = !tuning.asked.lengths.empty();
  return rounds.size() == round_count(tuning) ||
         (chooses_length && rounds.size() > 1 && rounds.back().gaining.empty());
}

// The rounds whose scores are all there, as far as the choice needs them.
std::vector<Round> rounds_of(const Tuning& tuning, const TuningScores& scores) {
  std::vector<Round> rounds;
  while (!is_enough(tuning, rounds)) {
    Round round{groups_of_round(tuning, rounds, rounds.size(), scores), {}};
    if (round.groups.empty()) break;
    for (size_t g = 0; !rounds.empty() && g < round.groups.size(); ++g) {
      const double before = rounds.back().groups[g].best_means.front();
      if (round.groups[g].best_means.front() - before >= tuning.asked.gain_below)
        round.gaining.push_back(round.groups[g].name);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// Chooses among the scores that there are. Not settled where one is missing that the choice needs.
void choose(Tuning& tuning, const TuningScores& scores) {
  const std::vector<Round> rounds = rounds_of(tuning, scores);
  tuning.groups.clear();
  tuning.tried.clear();
  tuning.steps.reset();
  tuning.still_gaining.clear();
  if (!is_enough(tuning, rounds)) return;
  const bool chooses_length = !tuning.asked.lengths.empty();
  const bool shorter_will_do = chooses_length && rounds.back().gaining.empty();
  const size_t chosen = rounds.size() - (shorter_will_do ? 2 : 1);
  tuning.groups = rounds[chosen].groups;
  for (size_t g = 0; g < tuning.groups.size(); ++g) {
    tuning.groups[g].best_means =
        mapped(rounds, [&](const Round& round) { return round.groups[g].best_means.front(); });
  }
  tuning.tried.assign(tuning.lengths.begin(),
                      tuning.lengths.begin() + (chooses_length ? static_cast<int64_t>(rounds.size()) : 0));
  if (chooses_length) {
    tuning.steps = tuning.lengths[chosen];
    tuning.still_gaining = rounds.back().gaining;
  }
}

}  // namespace

double Candidate::mean() const {
  double sum = 0;
  for (const auto& score : scores) sum += score.value_or(0);
  return sum / static_cast<double>(scores.size());
}

int Candidate::diverged() const {
  return static_cast<int>(
      std::ranges::count_if(scores, [](const auto& score) { return !score.has_value(); }));
}

std::vector<RunSpec> needed_runs(const Tuning& tuning, const TuningScores& scores) {
  const std::vector<Round> rounds = rounds_of(tuning, scores);
  const size_t at_once = tuning.asked.halvings > 0 ? 1 : 2;
  const size_t next = rounds.size() + (is_enough(tuning, rounds) ? 0 : 1);
  const size_t count = std::min(std::max(next, at_once), round_count(tuning));
  std::vector<std::vector<TunedGroup>> entered;
  for (size_t i = 0; i < count; ++i) entered.push_back(entrants(tuning, rounds, i));
  std::vector<RunSpec> needed = tuning.runs.runs;
  std::erase_if(needed, [&](const RunSpec& run) {
    for (size_t i = 0; i < count; ++i)
      if (takes_part(tuning, entered[i], i, run)) return false;
    return true;
  });
  return needed;
}

size_t most_needed_runs(const Tuning& tuning, TuningScores scores) {
  size_t before = 0;
  std::vector<RunSpec> needed = needed_runs(tuning, scores);
  while (needed.size() > before) {
    before = needed.size();
    for (const RunSpec& run : needed)
      scores.emplace(run.id, static_cast<double>(run.steps) * tuning.asked.gain_below);
    needed = needed_runs(tuning, scores);
  }
  return needed.size();
}

void settle(Experiment& experiment, const TuningScores& scores) {
  auto tuning = std::make_shared<Tuning>(*experiment.tuning);
  choose(*tuning, scores);
  if (!tuning->is_settled()) return;
  const std::vector<RunSpec> before = experiment.runs;
  for (RunSpec& run : experiment.runs) {
    const auto group = std::ranges::find(tuning->groups, tuned_group(tuning->asked, run), &TunedGroup::name);
    run = make_run(with_choice(run, group->chosen().setting, tuning->steps));
  }
  for (Contrast& contrast : experiment.contrasts) {
    const Json at = contrast.at;
    for (std::string* strategy : {&contrast.strategy, &contrast.above}) {
      for (size_t i = 0; i < before.size(); ++i) {
        if (label(before[i].strategy) == *strategy && matches(at, before[i])) {
          *strategy = label(experiment.runs[i].strategy);
          break;
        }
      }
    }
  }
  share_worlds(experiment.runs);
  experiment.tuning = tuning;
}

}  // namespace bnlab
