#include "harness/report/report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

// Why a row has no images/s, or fewer than it has runs.
struct WhyNoRate {
  char letter;
  bool ReportRow::* is;
  const char* words;
};
constexpr WhyNoRate kWhyNoRate[] = {
    {'e', &ReportRow::emulated, "emulated, with several towers per rank"},
    {'j', &ReportRow::ran_beside_others, "other runs at the same time (--jobs)"},
    {'d', &ReportRow::disturbed, "others used the machine during some of these timings, which do not count"},
    {'t', &ReportRow::timing_failed,
     "the turns in which some runs were to be timed failed; their notes say why"}};

// A dash, with the reasons in letters.
std::string no_rate_text(const ReportRow& row) {
  std::string letters;
  for (const WhyNoRate& why : kWhyNoRate)
    if (row.*why.is) letters += why.letter;
  return letters.empty() || row.scores.count(Status::ok) == 0 ? "-" : "- (" + letters + ")";
}

std::string text_of(const ReportRow& row, const Measure& measure) {
  if (measure.key == kRelativeImagesPerS)
    return row.relative_rate ? fixed(*row.relative_rate, measure.shown_decimals) : "-";
  const SeedValues& values = row.of(measure.key);
  if (measure.key == kImagesPerS && values.empty()) return no_rate_text(row);
  Interval shown = over_seeds(measure.is_logarithm ? per_cent(values) : values);
  if (!measure.has_interval) shown.half_width = std::numeric_limits<double>::quiet_NaN();
  return plus_minus(shown, measure.shown_decimals, measure.is_logarithm ? 1 : measure.size);
}

// " (2 stale)" behind the number of runs of a row, or "".
std::string stale_text(const ExperimentReport& report, const std::set<uint64_t>& stale) {
  return report.marks_stale && !stale.empty() ? " (" + std::to_string(stale.size()) + " stale)" : "";
}

// " (1 stopped early)" likewise, or "".
std::string stopped_text(const std::set<uint64_t>& stopped) {
  return stopped.empty() ? "" : " (" + std::to_string(stopped.size()) + " stopped early)";
}

// " (3 failed)", of seeds that a comparison has lost, or "".
std::string failed_text(const std::set<uint64_t>& failed) {
  return failed.empty() ? "" : " (" + std::to_string(failed.size()) + " failed)";
}

// Whether some row of the cells has a property.
template <class Property>
bool any_row(const ExperimentReport& report, Property has) {
  return std::ranges::any_of(report.cells,
                             [&](const ReportCell& cell) { return std::ranges::any_of(cell.rows, has); });
}

// Whether a row of one of the two tables has some property.
template <class Property>
bool marks_some(const ExperimentReport& report, Property marked) {
  return std::ranges::any_of(report.contrasts, marked) ||
         any_row(report, [&](const ReportRow& row) { return marked(row.scores); });
}

bool any_row_tells(const ExperimentReport& report, const std::string& measure) {
  return any_row(report, [&](const ReportRow& row) { return !row.of(measure).empty(); });
}

// The measures that have a column in the table of cells.
std::vector<Measure> shown_measures(const ExperimentReport& report) {
  std::vector<Measure> shown;
  for (const Measure& measure : measures())
    if (const ShownIf when = measure.shown_if;
        when == ShownIf::always || (when == ShownIf::any_row && any_row_tells(report, measure.key)) ||
        (when == ShownIf::baseline && !report.baseline.empty()) ||
        (when == ShownIf::roofline && !report.roofline.empty()))
      shown.push_back(measure);
  return shown;
}

// Whether some cell was run on several placements, so that rows need to name theirs.
bool names_placements(const ExperimentReport& report) {
  return std::ranges::any_of(report.cells, [](const ReportCell& cell) { return cell.rows.size() > 1; });
}

// What the copies of the runs beside which others were timed say of the smallest difference that can be told.
std::string noise_sentence(const ExperimentReport& report) {
  double largest = 0, largest_mean = 0, sum = 0;
  size_t n = 0;
  bool together = false;
  for (const ReportCell& cell : report.cells) {
    for (const ReportRow& row : cell.rows) {
      const SeedValues& logs = row.of("same_log_images_per_s");
      if (logs.empty()) continue;
      together = together || row.timed_together;
      largest_mean = std::max(largest_mean, 100 * std::abs(std::expm1(over_seeds(logs).mean)));
      for (const auto& [seed, log] : logs) {
        const double per_cent = 100 * std::abs(std::expm1(log));
        largest = std::max(largest, per_cent);
        sum += per_cent;
        ++n;
      }
    }
  }
  return "Times were taken in short turns with the run that the spec names (timing.against)" +
         std::string(together ? ", all runs of a seed and setting in one world of ranks" : "") +
         ". That run was there twice. Its copies differ by " + fixed(sum / static_cast<double>(n), 1) +
         " % on average, by " + fixed(largest, 1) +
         " % at most. In the mean of a row's runs they differ by " + fixed(largest_mean, 1) +
         " % at most, which is the noise of these times.";
}

// The machines of the rows whose images/s may be claimed, each with the placements that it timed.
std::map<std::string, std::set<std::string>> timing_machines(const ExperimentReport& report) {
  std::map<std::string, std::set<std::string>> machines;
  for (const ReportCell& cell : report.cells) {
    for (const ReportRow& row : cell.rows) {
      if (!row.claimed_images_per_s()) continue;
      for (const std::string& machine : row.machines) machines[machine].insert(row.placement);
    }
  }
  return machines;
}

void add_tuning_notes(const ExperimentReport& report, std::vector<std::string>& notes) {
  if (!report.tuning) return;
  if (!report.tuning->is_settled()) {
    notes.push_back("Not tuned yet, which comes before the matrix: " + report.tuning->sentence() + ".");
    return;
  }
  notes.push_back("Tuned: " + report.tuning->sentence() + ". No other number rests on these runs.");
  if (report.tuning->steps) notes.push_back("Length: " + report.tuning->length_sentence() + ".");
  for (const TunedGroup& group : report.tuning->groups) {
    if (group.chosen().diverged() == static_cast<int>(group.chosen().scores.size())) {
      notes.push_back("Warning: every setting of " + group.name +
                      " diverged in tuning; the first of the grid was taken.");
      continue;
    }
    for (const std::string& key : group.at_edge) {
      notes.push_back("Warning: the best " + key + " of " + group.name + ", " +
                      setting_text({{key, group.chosen().setting.at(key)}}) +
                      ", lies at the edge of the grid; the best one may lie beyond.");
    }
  }
}

// Comparisons that are warned of alike share a sentence.
void add_contrast_warnings(const ExperimentReport& report, std::vector<std::string>& notes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> warnings;  // each with its comparisons
  for (const ContrastResult& result : report.contrasts) {
    if (result.warning.empty()) continue;
    const std::string of = pair_name(result.contrast) + " at " + result.group;
    const auto alike =
        std::ranges::find_if(warnings, [&](const auto& known) { return known.first == result.warning; });
    (alike == warnings.end() ? warnings.emplace_back(result.warning, std::vector<std::string>()) : *alike)
        .second.push_back(of);
  }
  for (const auto& [warning, of] : warnings) {
    const std::string names = of.size() > 2 ? std::to_string(of.size()) + " comparisons" : joined(of, "; ");
    notes.push_back("Warning: " + names + ": " + warning + ".");
  }
}

}  // namespace

TextTable cells_table(const ExperimentReport& report) {
  TextTable table;
  const bool placements = names_placements(report);
  for (std::string title : report.columns) {
    const size_t space = title.find(' ');
    if (space != std::string::npos) title[space] = '\n';
    table.columns.push_back({title});
  }
  if (placements) table.columns.push_back({"placement"});
  table.columns.push_back({"n", true});
  for (const std::string& population : report.populations)
    table.columns.push_back({report.headline + "\n" + population, true});
  const std::vector<Measure> shown = shown_measures(report);
  for (const Measure& measure : shown)
    table.columns.push_back(
        {measure.shown_as + (measure.key == kRelativeImagesPerS ? report.baseline : ""), true});
  const bool failures = any_row(report, [](const ReportRow& row) { return !row.scores.failures().empty(); });
  if (failures) table.columns.push_back({"failed"});
  for (const ReportCell& cell : report.cells) {
    for (const ReportRow& row : cell.rows) {
      std::vector<std::string> texts = cell.cell;
      if (placements) texts.push_back(row.placement);
      const std::string ok = std::to_string(row.scores.count(Status::ok));
      const bool complete = row.scores.count(std::nullopt) == 0;
      texts.push_back((complete ? ok : ok + "/" + std::to_string(row.scores.outcomes.size())) +
                      stale_text(report, row.scores.stale) + stopped_text(row.scores.stopped));
      for (const std::string& population : report.populations)
        texts.push_back(plus_minus(over_seeds(row.scores.values.at(population))));
      for (const Measure& measure : shown) texts.push_back(text_of(row, measure));
      if (failures) texts.push_back(counts_text(row.scores.failures()));
      table.rows.push_back(texts);
    }
  }
  return table;
}

TextTable contrasts_table(const ExperimentReport& report) {
  TextTable table{{{"contrast"},
                   {"at"},
                   {"metric"},
                   {"n", true},
                   {"difference", true},
                   {"sign-flip\np", true},
                   {"Holm\np", true},
                   {"verdict"}},
                  {}};
  for (const ContrastResult& result : report.contrasts) {
    const Contrast& contrast = result.contrast;
    const Measure unit = measure_of(contrast.metric);
    std::string verdict = verdict_name(result);
    if (result.verdict == Verdict::equal)
      verdict += " within " + significant(*contrast.equivalence_margin / unit.size, 3);
    table.rows.push_back({pair_name(contrast), result.group, measured_name(contrast),
                          std::to_string(result.interval.n) + stale_text(report, result.stale) +
                              stopped_text(result.stopped) + failed_text(result.failed),
                          plus_minus(result.interval, unit.decimals, unit.size),
                          result.sign_flip_p ? significant(*result.sign_flip_p, 2) : "-",
                          significant(result.holm_p, 2), verdict});
  }
  return table;
}

TextTable tuning_table(const ExperimentReport& report) {
  const bool there = report.tuning && report.tuning->is_settled() && !report.tuning->asked.grid.empty();
  TextTable table{{{there ? joined(report.tuning->asked.per) : ""}, {"chosen"}}, {}};
  for (const TunedGroup& group : there ? report.tuning->groups : std::vector<TunedGroup>()) {
    std::vector<std::string> texts = {group.name, setting_text(group.chosen().setting)};
    for (const Candidate& candidate : group.candidates) {
      if (table.rows.empty()) {
        table.columns.push_back(
            {report.tuning->asked.metric + " at\n" + setting_text(candidate.setting), true});
      }
      const int diverged = candidate.diverged();
      texts.push_back(
          fixed(candidate.mean(), 3) + (diverged == 0 ? "" : " (" + std::to_string(diverged) + " diverged)") +
          (candidate.dropped_after ? " (after " + std::to_string(*candidate.dropped_after) + " steps)" : ""));
    }
    table.rows.push_back(texts);
  }
  return table;
}

TextTable length_table(const ExperimentReport& report) {
  const bool there = report.tuning && report.tuning->steps;
  TextTable table{{{there ? joined(report.tuning->asked.per) : ""}}, {}};
  for (const int64_t length : there ? report.tuning->tried : std::vector<int64_t>()) {
    table.columns.push_back(
        {"best " + report.tuning->asked.metric + "\nafter " + std::to_string(length), true});
  }
  for (const TunedGroup& group : there ? report.tuning->groups : std::vector<TunedGroup>()) {
    std::vector<std::string> texts = {group.name};
    for (const double mean : group.best_means) texts.push_back(fixed(mean, 3));
    table.rows.push_back(texts);
  }
  return table;
}

std::vector<std::string> footnotes(const ExperimentReport& report) {
  std::vector<std::string> notes = {
      "Every number is the mean over the n seeds that ended ok; \u00b1 is the half-width of its 95 % t "
      "interval. Peak: of the rank with the largest; coll., bytes: collectives and bytes per step of one "
      "rank, for statistics and shuffling."};
  const auto note_if = [&](bool holds, const std::string& note) {
    if (holds) notes.push_back(note);
  };
  note_if(any_row(report,
                  [](const ReportRow& row) {
                    const SeedValues& bytes = row.of("bytes_per_step");
                    return row.ranks == 1 && !bytes.empty() && over_seeds(bytes).mean > 0;
                  }),
          "With one rank nothing is sent: coll. and bytes are what the strategy would exchange.");
  const bool rates = any_row_tells(report, kImagesPerS);  // else no row has the letters
  const size_t before = notes.size();
  for (const WhyNoRate& why : kWhyNoRate) {
    const auto explains = [&](const ReportRow& row) {
      const bool is_all = why.is != &ReportRow::ran_beside_others ||
                          (!row.claimed_images_per_s() && (rates || !row.emulated));
      return row.*why.is && is_all;
    };
    note_if(any_row(report, explains),
            (rates ? std::string("(") + why.letter + ") " : "No images/s: ") + why.words + ".");
  }
  note_if(!rates && notes.size() == before &&
              any_row(report, [](const ReportRow& row) { return row.scores.count(Status::ok) > 0; }),
          "No images/s: no run recorded any, such as one of too few steps.");
  for (const Measure& measure : measures())
    note_if(!measure.note.empty() && any_row_tells(report, measure.key), measure.note);
  note_if(!report.roofline.empty(), report.roofline);
  note_if(any_row_tells(report, kLogImagesPerS), noise_sentence(report));
  if (const auto machines = timing_machines(report); machines.size() > 1) {
    std::vector<std::string> texts;
    for (const auto& [machine, placements] : machines)
      texts.push_back(joined({placements.begin(), placements.end()}) + " on " + machine);
    notes.push_back("Timed on several machines or numbers of threads: " + joined(texts, "; ") +
                    ". Compare images/s, ms and µs between rows of one machine alone.");
  }
  note_if(
      names_placements(report),
      "Some cells have runs on several placements, a row each. A comparison of accuracy takes the "
      "placement on which most seeds are paired. Where that leaves seeds out or has stale ones, each seed "
      "counts once. A run that is up to date goes before a stale one, real ranks before emulated ones, "
      "then the first placement by name. Costs are compared on one placement at a time.");
  note_if(
      marks_some(report, [](const auto& row) { return !row.stopped.empty(); }),
      "(stopped early) so many runs of the row, or of a comparison's pairs, were ended by the spec's "
      "stop_early, because their training loss rose or did not fall; no evaluation entered that decision. "
      "They count with the evaluation at the step where they stopped: what they would have reached later "
      "is not known.");
  note_if(std::ranges::any_of(report.contrasts, [](const auto& result) { return !result.failed.empty(); }),
          "(failed) at so many seeds more one side of a comparison ended well and the other failed: what its "
          "verdict says holds where both ended well, and equality is said of none of these.");
  note_if(
      marks_some(report, [&](const auto& row) { return !stale_text(report, row.stale).empty(); }),
      "(stale) so many runs of the row might come out otherwise today, because code, data or weights have "
      "changed since; bnlab run " +
          shell_word(report.experiment) + " --redo stale starts them again.");
  add_tuning_notes(report, notes);
  notes.insert(notes.end(), report.declared.begin(), report.declared.end());
  add_contrast_warnings(report, notes);
  return notes;
}

std::string progress_sentence(const ExperimentReport& report) {
  const RunCounts& runs = report.runs;
  const std::string of = " of " + std::to_string(runs.asked) + " runs ";
  std::string text = runs.failed == 0 ? std::to_string(runs.finished) + of + "are there"
                                      : std::to_string(runs.ok()) + of + "ended ok, " +
                                            std::to_string(runs.failed) + " failed";
  if (runs.failed > 0 && runs.missing() > 0) text += ", " + std::to_string(runs.missing()) + " are not there";
  return text + (runs.missing() > 0 ? ": the matrix is incomplete, the numbers provisional." : ".");
}

std::string report_text(const ExperimentReport& report) {
  const ResultPage& page = report.page;
  std::string text = page.title.empty() ? "" : wrapped(page.title) + "\n";
  text += wrapped(report.experiment + ": " + report.question);
  if (!page.advice.empty()) text += wrapped("Advice: " + without_links(page.advice));
  if (!page.how_sure.empty()) text += wrapped("How sure: " + without_links(page.how_sure));
  if (!page.numbers.empty()) text += wrapped("In numbers: " + without_links(page.numbers));
  if (const MainTable main = main_table(report); !main.note.empty())
    text += "\n" + main.table.text() + wrapped(main.note) + "\n";
  for (const std::string& sentence : report.learned) text += wrapped(sentence);
  if (!report.claim.empty()) text += wrapped("Expected beforehand: " + report.claim);
  text += wrapped(progress_sentence(report)) + "\n" + cells_table(report).text() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).text() + "\n";
  for (const TextTable& tuned : {tuning_table(report), length_table(report)})
    if (!tuned.rows.empty()) text += tuned.text() + "\n";
  for (const std::string& note : footnotes(report)) text += wrapped(note);
  if (report.runs.failed > 0) text += "\nFailed runs:\n";
  for (const std::string& line : failure_lines(report.runs.failures)) text += wrapped(line);
  for (const auto& [reason, runs] : report.runs.stale_reasons)
    text += wrapped(std::to_string(runs) + " runs are stale: " + reason + ".");
  if (report.runs.confirmed > 0)
    text += wrapped(std::to_string(report.runs.confirmed) + " runs are" + kConfirmed + ".");
  return text + (report.leaders.empty() ? "" : "\n" + wrapped(report.leaders));
}

std::string summary_markdown(const ExperimentReport& report) {
  const MainTable main = main_table(report);
  return main.note.empty() ? "" : main.table.markdown() + "\n" + markdown_escape(main.note) + "\n";
}

std::string tables_markdown(const ExperimentReport& report) {
  std::string text = progress_sentence(report) + "\n\n" + cells_table(report).markdown() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).markdown() + "\n";
  for (const TextTable& tuned : {tuning_table(report), length_table(report)})
    if (!tuned.rows.empty()) text += tuned.markdown() + "\n";
  for (const std::string& note : footnotes(report)) text += "- " + markdown_escape(note) + "\n";
  for (const std::string& line : failure_lines(report.runs.failures))
    text += "- Failed: " + markdown_escape(line) + "\n";
  if (!report.leaders.empty()) text += "\n" + markdown_escape(report.leaders) + "\n";
  for (const std::string& sentence : report.learned) text += "\n" + markdown_escape(sentence) + "\n";
  return text;
}

std::string report_markdown(const ExperimentReport& report) {
  std::string text = "**" + markdown_escape(report.question) + "**\n\n";
  if (const std::string main = summary_markdown(report); !main.empty()) text += main + "\n";
  if (!report.claim.empty()) text += "Expected beforehand: " + markdown_escape(report.claim) + "\n\n";
  return text + tables_markdown(report);
}

void replace_between_markers(const std::filesystem::path& file, const std::vector<MarkedText>& texts) {
  const std::string end_line = "<!-- end -->";
  const bool is_there = std::filesystem::is_regular_file(file);
  std::string document = is_there ? read_text(file) : "";
  for (const MarkedText& each : texts) {
    const std::string line = "<!-- " + each.mark + " -->\n";
    const size_t begin = document.find(line);
    const size_t end = begin == std::string::npos ? begin : document.find(end_line, begin);
    if (end == std::string::npos) {
      throw Error(Error::Kind::usage, file.string() + ": expected a file with the lines \"<!-- " + each.mark +
                                          " -->\" and \"" + end_line + "\" around the place for the table" +
                                          (is_there ? "" : ", got none"));
    }
    document.replace(begin + line.size(), end - begin - line.size(), each.text);
  }
  write_atomically(file, document);
}

}  // namespace bnlab
