#include "harness/records/answers.hpp"

#include <algorithm>
#include <sstream>

#include "harness/components/task_files.hpp"
#include "harness/records/report_tables.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "**Answer.**";

std::string answer_in(const fs::path& findings) {
  if (!fs::exists(findings)) return "open";
  std::istringstream lines(read_text(findings));
  std::string answer;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kMark)) {
      answer = line.substr(line.find_first_not_of(' ', std::string(kMark).size()));
    } else if (!answer.empty() && line.empty()) {
      break;
    } else if (!answer.empty()) {
      answer += " " + line;
    }
  }
  return answer.empty() ? "open" : answer;
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

std::string evidence_of(const Experiment& experiment, const ExperimentReport& report) {
  if (report.contrasts.empty()) return "nothing declared";
  const TextTable table = contrasts_table(report);
  const ContrastResult& first = report.contrasts.front();
  const std::vector<std::string>& row = table.rows.front();
  if (first.interval.n == 0) return "no runs yet";
  return row[0] + " at " + row[1] + ": " + row[4] + " " + row[2] + ", n = " + row[3] + ", " + row.back() +
         "; " + data_of(experiment);
}

}  // namespace

Answer answer_of(const Experiment& experiment, const ExperimentReport& report, const fs::path& folder) {
  return {experiment.question, answer_in(folder / "findings.md"), evidence_of(experiment, report),
          folder.string()};
}

std::string answers_markdown(const std::vector<Answer>& answers, const fs::path& from) {
  std::string text = "| question | answer | evidence | page |\n|---|---|---|---|\n";
  for (const Answer& answer : answers) {
    const std::string name = fs::path(answer.folder).filename().string();
    const std::string page = (fs::proximate(answer.folder, from) / "README.md").generic_string();
    text += "| " + markdown_escape(answer.question) + " | " + answer.answer + " | " +
            markdown_escape(answer.evidence) + " | [" + name + "](" + page + ") |\n";
  }
  return text;
}

std::string answers_text(const std::vector<Answer>& answers) {
  std::string text;
  for (const Answer& answer : answers) {
    text += wrapped(answer.question) + wrapped(answer.answer, 2) + wrapped(answer.evidence, 2) +
            wrapped(answer.folder, 2) + "\n";
  }
  return text;
}

}  // namespace bnlab
