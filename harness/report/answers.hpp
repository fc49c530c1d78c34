// The answers that experiments have given, a row for each: the question, the answer in words, the evidence
// for it, the page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/report/short_answer.hpp"
#include "harness/text_table.hpp"

namespace bnlab {

inline constexpr const char* kFindings =
    "findings.md";  // in the experiment's folder: what people write of it

struct Answer {
  std::string question;  // the experiment's name where it asks none
  std::string title;     // of the page, which asks the question shortly; the question where there is none
  std::string answer;    // people's own words; "open" where they have not written any
  // Of the first declared contrast that was decided, else of the first that has runs; and how all came out.
  std::string evidence;
  std::string seen_before;  // earlier attempts, in people's own words; "" where there are none
  std::string folder;       // of the results
};

// The answer stands in `findings.md` of the experiment's folder, in the paragraph that begins with
// "**Answer.**", and what was seen before the question was asked so in "**Seen before.**".
Answer answer_to(const Experiment& experiment, const ExperimentReport& report,
                 const std::filesystem::path& folder);

struct ShortAnswerRow {
  std::string question;  // as Answer::title
  ShortAnswer answer;
  std::string folder;
};

// By the paragraph "**In short.**" of findings.md. Throws Error with the file's name where that is refused.
ShortAnswerRow short_answer_row(const std::string& experiment, const std::string& question,
                                const std::filesystem::path& folder, const GroundsOf& grounds_of);

// The paragraphs "**Advice.**" and "**Answer.**" of the folder's findings.md with their marks, their links as
// seen from the folder `from`, each with an empty line behind it; "" where none is written.
std::string answer_paragraphs(const std::filesystem::path& folder, const std::filesystem::path& from);

// Markdown with a link to each page. Paths are as seen from `from`, the folder of the document.
std::string answers_markdown(const std::vector<Answer>& answers, const std::filesystem::path& from);
std::string short_answers_markdown(const std::vector<ShortAnswerRow>& answers,
                                   const std::filesystem::path& from);
std::string answers_text(const std::vector<Answer>& answers);
std::string short_answers_text(const std::vector<ShortAnswerRow>& answers);

}  // namespace bnlab
