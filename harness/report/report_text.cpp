// A report as text or Markdown, and its way into a document.
#include "harness/error.hpp"
#include "harness/report/report.hpp"
#include "harness/report/report_tables.hpp"

namespace bnlab {

std::string report_text(const ExperimentReport& report) {
  std::string text = wrapped(report.experiment + ": " + report.question);
  if (!report.claim.empty()) text += wrapped("Claim: " + report.claim);
  text += wrapped(progress_sentence(report)) + "\n" + cells_table(report).text() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).text() + "\n";
  if (const TextTable tuned = tuning_table(report); !tuned.rows.empty()) text += tuned.text() + "\n";
  for (const std::string& note : footnotes(report)) text += wrapped(note);
  if (report.runs.failed > 0) text += "\nFailed runs:\n";
  for (const std::string& line : failure_lines(report.runs.failures)) text += wrapped(line);
  for (const auto& [reason, runs] : report.runs.stale_reasons) {
    text += wrapped(std::to_string(runs) + " runs are stale: " + reason + ".");
  }
  if (report.runs.confirmed > 0)
    text += wrapped(std::to_string(report.runs.confirmed) + " runs are" + kConfirmed + ".");
  if (!report.learned.empty()) text += "\n";
  for (const std::string& sentence : report.learned) text += wrapped(sentence);
  return text;
}

std::string report_markdown(const ExperimentReport& report) {
  std::string text = "**" + markdown_escape(report.question) + "**\n\n";
  if (!report.claim.empty()) text += "Claim: " + markdown_escape(report.claim) + "\n\n";
  text += progress_sentence(report) + "\n\n" + cells_table(report).markdown() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).markdown() + "\n";
  if (const TextTable tuned = tuning_table(report); !tuned.rows.empty()) text += tuned.markdown() + "\n";
  for (const std::string& note : footnotes(report)) text += "- " + markdown_escape(note) + "\n";
  for (const std::string& line : failure_lines(report.runs.failures)) {
    text += "- Failed: " + markdown_escape(line) + "\n";
  }
  for (const std::string& sentence : report.learned) text += "\n" + markdown_escape(sentence) + "\n";
  return text;
}

void replace_between_markers(const std::filesystem::path& file, const std::string& name,
                             const std::string& text) {
  const std::string begin_mark = "<!-- table:" + name + " -->\n", end_mark = "<!-- end -->";
  const std::string document = read_text(file);
  const size_t begin = document.find(begin_mark);
  const size_t end = begin == std::string::npos ? begin : document.find(end_mark, begin);
  if (end == std::string::npos) {
    throw Error(Error::Kind::usage, file.string() + ": expected the lines \"<!-- table:" + name +
                                        " -->\" and \"<!-- end -->\" around the place for the table");
  }
  const size_t content = begin + begin_mark.size();
  write_atomically(file, document.substr(0, content) + text + document.substr(end));
}

}  // namespace bnlab
