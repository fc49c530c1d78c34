// The answers that experiments have given, a row for each: the question, the answer in words, the evidence
// for it, the page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/text_table.hpp"

namespace bnlab {

struct Answer {
  std::string question;  // the experiment's name where it asks none
  std::string title;     // of the page, which asks the question shortly; the question where there is none
  std::string answer;    // people's own words; "open" where they have not written any
  std::string in_short;  // in one line
  // Of the first declared contrast that was decided, else of the first that has runs; and how all came out.
  std::string evidence;
  std::string seen_before;  // earlier attempts, in people's own words; "" where there are none
  std::string folder;       // of the results
};

// The answer stands in `findings.md` of the experiment's folder, in the paragraph that begins with
// "**Answer.**", and what was seen before the question was asked so in "**Seen before.**"; in short it is the
// paragraph "**In one line.**", or else the answer's first sentence.
Answer answer_to(const Experiment& experiment, const ExperimentReport& report,
                 const std::filesystem::path& folder);

// The paragraph "**Answer.**" of the folder's findings.md with its mark, its links as seen from the folder
// `from`; "" where none is written.
std::string answer_paragraph(const std::filesystem::path& folder, const std::filesystem::path& from);

// Markdown with a link to each page: the answer with its evidence, or in short without. Paths are as seen
// from `from`, the folder of the document.
std::string answers_markdown(const std::vector<Answer>& answers, const std::filesystem::path& from);
std::string short_answers_markdown(const std::vector<Answer>& answers, const std::filesystem::path& from);
std::string answers_text(const std::vector<Answer>& answers);

}  // namespace bnlab
