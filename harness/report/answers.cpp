#include "harness/report/answers.hpp"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// The paragraph that begins with the mark, without it and on one line; "" where there is none.
std::string paragraph(const fs::path& findings, const std::string& mark) {
  if (!fs::exists(findings)) return "";
  std::istringstream lines(read_text(findings));
  std::string text;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(mark))
      text = line.substr(line.find_first_not_of(' ', mark.size()));
    else if (!text.empty() && line.empty())
      break;
    else if (!text.empty())
      text += " " + line;
  return text;
}

// "[Title](results/NAME/README.md)", as seen from the folder `from`.
std::string link_to(const std::string& folder, const std::string& title, const fs::path& from) {
  const std::string page = (fs::proximate(folder, from) / "README.md").generic_string();
  return "[" + markdown_escape(title) + "](" + page + ")";
}

// A text of `folder`, as seen from the folder `from`: its links to files lead to the same ones.
std::string relinked(const std::string& text, const fs::path& folder, const fs::path& from) {
  static const std::regex link(R"(\]\((?!\w+:|[#/])([^)#]+))");
  std::string seen;
  auto rest = text.cbegin();
  for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
    const fs::path file = (folder / (*found)[1].str()).lexically_normal();
    seen.append(rest, (*found)[0].first).append("](" + fs::proximate(file, from).generic_string());
    rest = (*found)[0].second;
  }
  return seen.append(rest, text.cend());
}

// What the heading of the page asks, "# NAME: title", with a capital; without a page the question.
std::string title_in(const fs::path& page, const std::string& question) {
  if (!fs::exists(page)) return question;
  const std::string text = read_text(page), heading = text.substr(0, text.find('\n'));
  const size_t colon = heading.find(": ");
  if (!heading.starts_with("# ") || colon == std::string::npos) return question;
  std::string title = heading.substr(colon + 2);
  if (!title.empty()) title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  return title;
}

// "synthetic images", or the data set's name.
std::string data_of(const Experiment& experiment) {
  std::vector<std::string> names;
  for (const RunSpec& run : experiment.runs) {
    const std::string name = reads_files(run.task) ? run.task.at("name").get<std::string>() : "synthetic";
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return joined(names);
}

// "6.3 ± 1.6": mean and half-width.
std::string plus_minus_text(const Interval& interval, double factor, int decimals) {
  const std::string mean = fixed(factor * interval.mean, decimals);
  return interval.n < 2 ? mean : mean + " \u00b1 " + fixed(factor * interval.half_width, decimals);
}

// "per_tower", and under other statistics than its saved ones "per_tower precise".
std::string with_population(const std::string& side, const std::string& population) {
  return population == "saved" ? side : side + " " + population;
}

// Shares are told in points, costs in their unit.
std::string contrast_sentence(const ContrastResult& result) {
  const Contrast& contrast = result.contrast;
  const bool cost = is_cost(contrast.metric);
  const auto [side, above] = side_names(contrast);
  std::string text = with_population(side, contrast.population) + " - " +
                     with_population(above, contrast.population_above());
  if (result.group != "all") text += " at " + result.group;
  const MetricUnit unit = unit_of(contrast.metric);
  const double factor = cost ? 1 / unit.size : 100;
  text += ": " + plus_minus_text(result.interval, factor, cost ? unit.decimals : 1) +
          (cost ? " " : " points of ") + unit.title + ", " + verdict_name(result);
  if (result.verdict != Verdict::equal) return text;
  return text + " within " + significant(factor * *contrast.equivalence_margin, 3) + (cost ? "" : " points");
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
  const fs::path findings = folder / kFindings;
  const std::string written = paragraph(findings, "**Answer.**"), answer = written.empty() ? "open" : written;
  const std::string question = experiment.question.empty() ? experiment.name : experiment.question;
  return {question,
          title_in(folder / "README.md", question),
          answer,
          evidence_of(experiment, report),
          paragraph(findings, "**Seen before.**"),
          folder.string()};
}

ShortAnswerRow short_answer_row(const std::string& experiment, const std::string& question,
                                const fs::path& folder, const GroundsOf& grounds_of) {
  const fs::path findings = folder / kFindings;
  const std::string mark = "**In short.**";
  try {
    return {title_in(folder / "README.md", question),
            short_answer_of(paragraph(findings, mark), experiment, grounds_of), folder.string()};
  } catch (const Error& error) {
    throw Error(error.kind(), findings.string() + ": " + mark + " " + error.what());
  }
}

std::string answer_paragraphs(const fs::path& folder, const fs::path& from) {
  std::string text;
  for (const std::string mark : {"**Advice.**", "**Answer.**"}) {
    const std::string written = paragraph(folder / kFindings, mark);
    if (!written.empty()) text += mark + " " + relinked(written, folder, from) + "\n\n";
  }
  return text;
}

std::string answers_markdown(const std::vector<Answer>& answers, const fs::path& from) {
  std::string text = "| question | answer | evidence |\n|---|---|---|\n";
  for (const Answer& answer : answers) {
    text += "| " + link_to(answer.folder, answer.title, from) + " | " +
            relinked(answer.answer, answer.folder, from) + " | " + markdown_escape(answer.evidence) + " |\n";
  }
  return text;
}

std::string short_answers_markdown(const std::vector<ShortAnswerRow>& answers, const fs::path& from) {
  std::string text = "| question | answer | evidence |\n|---|---|---|\n";
  for (const auto& [question, answer, folder] : answers) {
    text += "| " + markdown_escape(question) + " | " + answer.text + " | " +
            link_to(folder, name(answer.foundation), from) + " |\n";
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
  for (const auto& [question, answer, folder] : answers) {
    text += wrapped(question) + wrapped(answer.text + " (" + name(answer.foundation) + ")", 2) +
            wrapped(folder, 2) + "\n";
  }
  return text;
}

}  // namespace bnlab
