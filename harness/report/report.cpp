#include "harness/report/report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

constexpr size_t kMostSentences = 3;  // on one number
// What compare_with_baseline computes: what a step takes longer, and that for each collective more.
constexpr const char *kLongerMs = "extra_step_ms", *kLongerUs = "extra_us_per_collective",
                     *kCollectives = "collectives_per_step";

Scores scores_of(const std::vector<const RunSpec*>& runs, const std::vector<const Record*>& records,
                 const ExperimentReport& report) {
  Scores scores;
  for (const RunSpec* run : runs) scores.outcomes[run->seed] = std::nullopt;
  for (const Record* record : records) scores.outcomes[record->seed()] = record->status();
  for (const std::string& population : report.populations)
    scores.values[population] = values_by_seed(records, report.headline, population);
  scores.stale = stale_seeds(records);
  scores.stopped = stopped_seeds(records);
  return scores;
}

std::string machine_of(const Record& record) {
  return machine_text(record.at("environment"), record.at("placement.threads_per_rank"));
}

// The label of the strategy that the runs of a cell were timed beside, where nothing else differs.
std::string strategy_beside(const RunSpec& run) {
  if (!run.timing || run.timing->against.size() != 1 || !run.timing->against.contains("strategy")) return "";
  return label(run.timing->against.at("strategy"));
}

ReportRow row_of(const CellRecords& cell, const std::string& placement,
                 const std::vector<const Record*>& records, const ExperimentReport& report) {
  ReportRow row;
  row.placement = placement;
  row.scores = scores_of(cell.runs, records, report);
  for (const Record* record : records) {
    row.ranks = record->ranks();
    row.device = record->device();
    if (record->status() != Status::ok) continue;
    row.emulated = row.emulated || record->at("placement.emulated") == true;
    row.ran_beside_others |= !record->timed_elsewhere() && record->at("placement.jobs") != 1;
    row.disturbed = row.disturbed || record->disturbed();
    row.timing_failed = row.timing_failed ||
                        (record->at("spec.timing").is_object() && !record->at("result.timing").is_object());
    row.machines.insert(machine_of(*record));
  }
  row.timed_against = strategy_beside(*cell.runs[0]);
  row.timed_together = cell.runs[0]->timing && !cell.runs[0]->timing->together.empty();
  for (const Measure& measure : measures()) {
    if (!measure.is_of_rows()) continue;
    SeedValues& values = row.values[measure.key];
    values = values_by_seed(records, [&](const Record& record) { return number_of(record, measure); });
    if (measure.of_all_runs && values.size() != row.of(kImagesPerS).size()) values.clear();
  }
  if (const SeedValues& logs = row.of(kLogImagesPerS); !logs.empty())
    row.relative_rate = std::exp(over_seeds(logs).mean);
  return row;
}

ReportCell cell_of(const CellRecords& found, ExperimentReport& report) {
  ReportCell cell;
  static_cast<CellName&>(cell) = found;
  cell.populations = value_at(found.runs[0]->resolved, "populations");
  cell.towers = value_at(found.runs[0]->resolved, "towers");
  cell.batch_per_tower = value_at(found.runs[0]->resolved, "batch_per_tower");
  const std::vector<const Record*> records = found.one_per_seed();
  for (const Record* record : records)
    for (const auto& [population, unused] : record->at("result.final").items())
      cell.evaluated.insert(population);
  cell.scores = scores_of(found.runs, records, report);
  cell.metrics = final_metrics_of(records);
  cell.curves = curves_of(records, report.headline, report.problems);
  cell.sites = site_numbers(records);
  for (const auto& [placement, there] : found.placements)
    cell.rows.push_back(row_of(found, placement, there, report));
  if (cell.rows.empty()) cell.rows.push_back(row_of(found, "", {}, report));
  return cell;
}

// kLogImagesPerS over the baseline: as it was timed where the baseline's strategy stood beside, else by the
// strategy that stood beside both. None where there was none such.
SeedValues logs_over(const ReportRow& row, const ReportRow& baseline, const std::string& strategy) {
  if (row.timed_against == strategy) return row.of(kLogImagesPerS);
  if (row.timed_against.empty() || row.timed_against != baseline.timed_against) return {};
  return pairwise(row.of(kLogImagesPerS), baseline.of(kLogImagesPerS));
}

// By how much a step is longer than one of a run that makes exp(-log) times its images/s.
double longer(double step, double log) {
  return step * (1 - std::exp(log));
}

void compare(ReportRow& row, const ReportRow& baseline, const std::string& strategy) {
  const auto own = row.claimed_images_per_s(), of_baseline = baseline.claimed_images_per_s();
  if (!own || !of_baseline) return;
  if (&row == &baseline) {
    row.relative_rate = 1;
    return;
  }
  const SeedValues logs = logs_over(row, baseline, strategy);
  row.relative_rate = logs.empty() ? *own / *of_baseline : std::exp(over_seeds(logs).mean);
  row.values[kLongerMs] = logs.empty() ? pairwise(row.of(kStepMs), baseline.of(kStepMs))
                                       : pairwise(row.of(kStepMs), logs, longer);
  const double more = over_seeds(row.of(kCollectives)).mean - over_seeds(baseline.of(kCollectives)).mean;
  if (!(more > 0)) return;
  for (const auto& [seed, ms] : row.of(kLongerMs)) row.values[kLongerUs].emplace_back(seed, 1000 * ms / more);
}

// The strategy that costs are given relative to where nobody has named one.
std::string default_baseline(const ExperimentReport& report) {
  std::string first;
  std::set<std::string> counted;
  for (const ReportCell& cell : report.cells) {
    for (const ReportRow& row : cell.rows) {
      if (!row.claimed_images_per_s()) continue;
      counted.insert(cell.strategy);
      if (first.empty() && over_seeds(row.of(kCollectives)).mean == 0) first = cell.strategy;
    }
  }
  return counted.size() > 1 ? first : "";
}

// Fills in what rows cost more than the row of `report.baseline` in the same group and on the same placement.
// Throws Error (usage) where no run has that strategy.
void compare_with_baseline(ExperimentReport& report) {
  std::vector<std::string> labels;
  std::map<std::pair<std::string, std::string>, const ReportRow*> baselines;  // by group and placement
  for (const ReportCell& cell : report.cells) {
    if (std::ranges::find(labels, cell.strategy) == labels.end()) labels.push_back(cell.strategy);
    if (cell.strategy != report.baseline) continue;
    for (const ReportRow& row : cell.rows) baselines[{cell.group, row.placement}] = &row;
  }
  if (baselines.empty()) {
    throw Error(Error::Kind::usage, "the baseline: no run of " + report.experiment + " has the strategy " +
                                        shown(report.baseline) + suggestion(report.baseline, labels));
  }
  for (ReportCell& cell : report.cells) {
    for (ReportRow& row : cell.rows) {
      if (row.timed_against != report.baseline)
        row.relative_rate.reset();  // what stood beside is another run
      const auto baseline = baselines.find({cell.group, row.placement});
      if (baseline != baselines.end()) compare(row, *baseline->second, report.baseline);
    }
  }
}

void add_relative(const Published& number, const std::string& cell, const std::vector<ReportRow>& rows,
                  std::vector<PublishedResult>& results) {
  for (const ReportRow& row : rows) {
    if (!row.relative_rate) continue;
    const Interval here{row.of(kImagesPerS).size(), *row.relative_rate,
                        std::numeric_limits<double>::quiet_NaN()};
    results.push_back({.published = number,
                       .cell = cell + (rows.size() > 1 ? " " + row.placement : ""),
                       .values = {},
                       .here = here});
  }
}

// One result per number and cell that matches its `at`; of kRelativeImagesPerS one per placement, as
// `reported` gives it. `reported` are the same cells as `cells`.
std::vector<PublishedResult> beside_published(const std::vector<Published>& published,
                                              const std::vector<CellRecords>& cells,
                                              const std::vector<ReportCell>& reported) {
  std::vector<PublishedResult> results;
  for (const Published& number : published) {
    for (size_t i = 0; i < cells.size(); ++i) {
      const CellRecords& cell = cells[i];
      if (!cell.lies_at(number.at)) continue;
      const std::string name = (cell.group == "all" ? "" : cell.group + " ") + cell.strategy;
      if (number.metric == kRelativeImagesPerS) {
        add_relative(number, name, reported[i].rows, results);
        continue;
      }
      const SeedValues values =
          values_by_seed(cell.records_at(number.at, cell.one_per_seed()), number.metric, number.population);
      results.push_back({.published = number, .cell = name, .values = values, .here = over_seeds(values)});
    }
  }
  return results;
}

std::string published_text(const Published& number) {
  return "Published " + number.metric + " " + fixed(number.from, 3) +
         (number.from == number.to ? "" : " to " + fixed(number.to, 3)) + " (" + number.source + "): ";
}

std::string sentence(const PublishedResult& result) {
  const Published& number = result.published;
  const std::string cell = published_text(number) + result.cell;
  if (result.here.n == 0) return cell + " has no finished run yet.";
  const double mean = result.here.mean;
  const std::string where = mean < number.from ? fixed(number.from - mean, 3) + " below"
                            : mean > number.to ? fixed(mean - number.to, 3) + " above"
                                               : "as published";
  return cell + " has " + fixed(mean, 3) + " (" +
         (is_cost(number.metric) ? "" : number.population + " statistics, ") +
         "n = " + std::to_string(result.here.n) + "), " + where + ".";
}

std::string sentence_for_all(const std::vector<PublishedResult>& results) {
  const auto mean = [](const PublishedResult& result) { return result.here.mean; };
  const auto [lowest, highest] = std::ranges::minmax_element(results, {}, mean);
  const auto text = [](const PublishedResult& result) {
    return fixed(result.here.mean, 3) + " (" + result.cell + ")";
  };
  return published_text(lowest->published) + "here from " + text(*lowest) + " to " + text(*highest) + ".";
}

// Cells of one group compete: "at 8x2 sync 0.712 (next group_norm 0.650)", or "(level with group_norm)" where
// they are the same as printed. A sentence per group.
std::string leaders(const ExperimentReport& report, const std::string& population) {
  struct Score {
    double value;
    std::string strategy;
  };
  std::vector<std::string> groups;
  std::map<std::string, std::vector<Score>> scores;
  for (const ReportCell& cell : report.cells) {
    const SeedValues& values = cell.scores.values.at(population);
    if (values.empty()) continue;
    if (!scores.contains(cell.group)) groups.push_back(cell.group);
    scores[cell.group].push_back({over_seeds(values).mean, cell.strategy});
  }
  std::string text;
  for (const std::string& group : groups) {
    auto& rivals = scores[group];
    std::ranges::stable_sort(rivals, [](const Score& a, const Score& b) { return a.value > b.value; });
    const std::string best = fixed(rivals[0].value, 3);
    std::vector<std::string> level;
    const Score* next = nullptr;
    for (const Score& score : rivals) {
      if (score.strategy == rivals[0].strategy) continue;
      if (next == nullptr) next = &score;
      if (fixed(score.value, 3) == best && std::ranges::count(level, score.strategy) == 0)
        level.push_back(score.strategy);
    }
    if (next == nullptr) continue;
    text += (text.empty() ? (group == "all" ? "" : "at ") : ". At ") + (group == "all" ? "" : group + " ") +
            rivals[0].strategy + " " + best +
            (level.empty() ? " (next " + next->strategy + " " + fixed(next->value, 3) + ")"
                           : " (level with " + joined(level) + ")");
  }
  return text;
}

std::string leaders_sentence(const ExperimentReport& report) {
  const auto& all = report.populations;
  if (all.empty()) return "";
  const std::string population = std::ranges::find(all, "saved") != all.end() ? "saved" : all[0];
  const std::string best = leaders(report, population);
  if (best.empty()) return "";
  return "Highest mean " + report.headline + " with " + population + " statistics, exploratory: " + best +
         ".";
}

std::vector<std::string> what_was_learned(const ExperimentReport& report) {
  std::vector<std::string> sentences;
  if (!report.contrasts.empty()) {
    const bool directions = std::ranges::any_of(report.contrasts, [](const ContrastResult& result) {
      return result.verdict == Verdict::direction_above || result.verdict == Verdict::direction_below;
    });
    std::vector<ContrastResult> decided = report.contrasts;
    std::erase_if(decided, [](const ContrastResult& result) { return result.verdict == Verdict::undecided; });
    const size_t undecided = report.contrasts.size() - decided.size();
    const std::string few =
        directions ? " (fewer than " + std::to_string(kFewestSeeds) + " seeds show a direction at most)" : "";
    sentences.push_back(
        "Declared comparisons: " +
        (decided.empty() ? verdicts_text(report.contrasts) : verdicts_text(decided)) + few +
        (decided.empty() || undecided == 0 ? "." : ". Undecided: " + std::to_string(undecided) + "."));
  }
  for (const std::string& sentence : published_sentences(report.published)) sentences.push_back(sentence);
  return sentences;
}

void find_names(const Experiment& experiment, const std::vector<Record>& records, ExperimentReport& report) {
  for (const RunSpec& run : experiment.runs) {
    const std::string samples = labels_clips(run.task) ? "clips" : "images";
    if (report.samples.empty()) report.samples = samples;
    if (report.samples != samples) report.samples = "samples";
    for (const std::string& population : run.evaluated()) {
      auto& all = report.populations;
      if (std::ranges::find(all, population) == all.end()) all.push_back(population);
    }
  }
  for (const Record& record : records) {
    if (record.at("result.headline").is_string())
      report.headline = record.at("result.headline").get<std::string>();
    if (!report.headline.empty()) return;
  }
  report.headline = experiment.contrasts.empty() ? "metric" : experiment.contrasts[0].metric;
}

}  // namespace

int Scores::count(const std::optional<Status>& outcome) const {
  return static_cast<int>(
      std::ranges::count_if(outcomes, [&](const auto& entry) { return entry.second == outcome; }));
}

std::map<std::string, int> Scores::failures() const {
  std::map<std::string, int> failures;
  for (const auto& [seed, outcome] : outcomes)
    if (outcome && outcome != Status::ok) ++failures[name(*outcome)];
  return failures;
}

const SeedValues& ReportRow::of(const std::string& measure) const {
  static const SeedValues none;
  const auto found = values.find(measure);
  return found == values.end() ? none : found->second;
}

std::optional<double> ReportRow::claimed_images_per_s() const {
  const SeedValues& rates = of(kImagesPerS);
  return rates.empty() ? std::nullopt : std::optional(over_seeds(rates).mean);
}

Interval over_seeds(const SeedValues& values) {
  return t_interval(without_seeds(values));
}

std::vector<std::string> published_sentences(const std::vector<PublishedResult>& results) {
  std::vector<std::string> sentences;
  for (size_t begin = 0, end = 0; begin < results.size(); begin = end) {
    std::vector<PublishedResult> of_one, finished;
    const std::string number = published_text(results[begin].published);
    for (end = begin; end < results.size() && published_text(results[end].published) == number; ++end) {
      of_one.push_back(results[end]);
      if (results[end].here.n > 0) finished.push_back(results[end]);
    }
    if (finished.size() > kMostSentences) {
      sentences.push_back(sentence_for_all(finished));
      continue;
    }
    for (const PublishedResult& result : of_one) sentences.push_back(sentence(result));
  }
  return sentences;
}

ExperimentReport make_report(const Experiment& experiment, const std::vector<Record>& records,
                             const std::vector<Declaration>& declarations, const std::string& baseline) {
  ExperimentReport report;
  report.experiment = experiment.name;
  report.question = experiment.question;
  report.claim = experiment.claim;
  find_names(experiment, records, report);
  report.runs = count_runs(experiment, records);
  const CellTable all = collect_cells(experiment, records);
  report.columns = all.columns;
  for (const CellRecords& cell : all.cells) report.cells.push_back(cell_of(cell, report));
  report.baseline = baseline.empty() ? default_baseline(report) : baseline;
  if (!report.baseline.empty()) compare_with_baseline(report);
  report.contrasts = evaluate_contrasts(experiment.contrasts, all, declarations);
  report.declared = declaration_sentences(report.contrasts, declarations);
  if (!report.contrasts.empty())
    report.declared_in_short = declaration_in_short(report.contrasts, declarations);
  report.published = beside_published(experiment.published, all.cells, report.cells);
  report.tuning = experiment.tuning;
  report.leaders = leaders_sentence(report);
  report.learned = what_was_learned(report);
  return report;
}

}  // namespace bnlab
