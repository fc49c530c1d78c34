#include "harness/report/answers.hpp"

#include <algorithm>
#include <set>

#include "harness/components/parameters.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// "[Title](results/NAME/README.md)", as seen from the folder `from`.
std::string link_to(const std::string& folder, const std::string& title, const fs::path& from) {
  return "[" + title + "](" + (fs::proximate(folder, from) / kResultPage).generic_string() + ")";
}

std::string question_of(const Experiment& experiment, const ResultPage& page) {
  if (!page.question.empty()) return page.question;
  return experiment.question.empty() ? experiment.name : experiment.question;
}

// "300 to 3000", or "15 epochs" where a run's length is counted so.
std::string steps_of(const Experiment& experiment) {
  std::set<std::pair<double, std::string>> lengths;
  for (const RunSpec& run : experiment.runs) {
    const double length = run.epochs.value_or(static_cast<double>(run.steps));
    lengths.emplace(length, significant(length, 6) + (run.epochs ? " epochs" : ""));
  }
  if (lengths.empty()) return "-";
  const std::string shortest = lengths.begin()->second, longest = lengths.rbegin()->second;
  return lengths.size() == 1 ? longest : shortest + " to " + longest;
}

// "nuclei", the names of the tasks.
std::string data_of(const Experiment& experiment) {
  std::vector<std::string> names;
  for (const RunSpec& run : experiment.runs) {
    const std::string name = run.task.at("name");
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return joined(names);
}

// Shares are told in points, costs in their unit.
std::string contrast_sentence(const ContrastResult& result) {
  const Contrast& contrast = result.contrast;
  const bool cost = is_cost(contrast.metric);
  const auto [side, above] = side_titles(contrast);
  std::string text = side + " - " + above;
  if (result.group != "all") text += " at " + result.group;
  const Measure unit = measure_of(contrast.metric);
  const double size = cost ? unit.size : 0.01;
  text += ": " + plus_minus(result.interval, cost ? unit.decimals : 1, size, " \u00b1 ") +
          (cost ? " " : " points of ") + unit.title + ", " + verdict_name(result);
  if (result.verdict != Verdict::equal) return text;
  return text + " within " + significant(*contrast.equivalence_margin / size, 3) + (cost ? "" : " points");
}

std::string evidence_of(const Experiment& experiment, const ExperimentReport& report) {
  if (report.contrasts.empty()) return "nothing declared";
  const auto decided = [](const ContrastResult& result) {
    return result.interval.n > 0 && result.verdict != Verdict::undecided &&
           result.verdict != Verdict::not_claimed;
  };
  const auto has_runs = [](const ContrastResult& result) { return result.interval.n > 0; };
  auto shown = std::ranges::find_if(report.contrasts, decided);
  if (shown == report.contrasts.end()) shown = std::ranges::find_if(report.contrasts, has_runs);
  if (shown == report.contrasts.end()) return "no runs yet";
  const size_t all = report.contrasts.size();
  const size_t failed = shown->failed.size();
  return contrast_sentence(*shown) + " (n = " + std::to_string(shown->interval.n) +
         (failed > 0 ? ", at " + std::to_string(failed) + " more one side failed" : "") + "; " +
         data_of(experiment) +
         (all > 1 ? "; of " + std::to_string(all) + " comparisons " + verdicts_text(report.contrasts) : "") +
         "; " + report.declared_in_short + ")";
}

}  // namespace

Answer answer_to(const Experiment& experiment, const ExperimentReport& report, const fs::path& folder) {
  const ResultPage page = read_result_page(folder);
  return {.question = question_of(experiment, page),
          .answer = page.numbers.empty() ? "open" : page.title + ". " + without_links(page.numbers),
          .evidence = evidence_of(experiment, report),
          .seen_before = page.seen_before,
          .folder = folder.string()};
}

ShortAnswerRow short_answer_row(const Experiment& experiment, const fs::path& folder,
                                const GroundsOf& grounds_of) {
  const ResultPage page = read_result_page(folder);
  try {
    return {.question = question_of(experiment, page),
            .answer = short_answer_of(page, experiment.name, grounds_of),
            .data = data_of(experiment),
            .steps = steps_of(experiment),
            .folder = folder.string()};
  } catch (const Error& error) {
    throw Error(error.kind(), (folder / kResultPage).string() + ": " + error.what());
  }
}

std::string index_markdown(const std::vector<ShortAnswerRow>& answers, const fs::path& from) {
  std::string text = "| question | answer | data | steps | evidence |\n|---|---|---|---|---|\n";
  for (const auto& [question, answer, data, steps, folder] : answers) {
    text += "| " + link_to(folder, markdown_escape(question), from) + " | " + answer.text + " | " + data +
            " | " + steps + " | " + name(answer.foundation) + " |\n";
  }
  return text;
}

std::string short_answers_markdown(const std::vector<ShortAnswerRow>& answers, const fs::path& from) {
  std::string text = "| question | answer | evidence |\n|---|---|---|\n";
  for (const ShortAnswerRow& row : answers) {
    text += "| " + markdown_escape(row.question) + " | " + row.answer.text + " | " +
            link_to(row.folder, name(row.answer.foundation), from) + " |\n";
  }
  return text;
}

std::string answers_text(const std::vector<Answer>& answers) {
  std::string text;
  for (const Answer& answer : answers) {
    text += wrapped(answer.question) + wrapped(answer.answer, 2) + wrapped(answer.evidence, 2);
    if (!answer.seen_before.empty()) text += wrapped("Seen before: " + answer.seen_before, 2);
    text += wrapped(answer.folder, 2) + "\n";
  }
  return text;
}

std::string short_answers_text(const std::vector<ShortAnswerRow>& answers) {
  std::string text;
  for (const ShortAnswerRow& row : answers) {
    text += wrapped(row.question) + wrapped(row.answer.text + " (" + name(row.answer.foundation) + ")", 2) +
            wrapped(row.folder, 2) + "\n";
  }
  return text;
}

}  // namespace bnlab
