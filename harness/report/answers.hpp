// The answers that experiments have given, a row for each: the question, the answer in words, the evidence
// for it, the page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/report/short_answer.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {

struct Answer {
  std::string question;  // the page's, else the experiment's, else its name
  std::string answer;    // the page's title and its numbers; "open" where there are none
  // Of the first declared contrast that was decided, else of the first that has runs; and how all came out.
  std::string evidence;
  std::string seen_before;  // earlier attempts, in people's own words; "" where there are none
  std::string folder;
};

// By the page in the experiment's folder.
Answer answer_to(const Experiment& experiment, const ExperimentReport& report,
                 const std::filesystem::path& folder);

struct ShortAnswerRow {
  std::string question;  // as Answer::question
  ShortAnswer answer;
  std::string data, steps;  // "nuclei", "300 to 3000"
  std::string folder;
};

// Throws Error with the page's name where its title is refused.
ShortAnswerRow short_answer_row(const Experiment& experiment, const std::filesystem::path& folder,
                                const GroundsOf& grounds_of);

// Markdown with a link to each page, as seen from `from`, the folder of the document. The index has the data
// and the steps, too.
std::string index_markdown(const std::vector<ShortAnswerRow>& answers, const std::filesystem::path& from);
std::string short_answers_markdown(const std::vector<ShortAnswerRow>& answers,
                                   const std::filesystem::path& from);
std::string answers_text(const std::vector<Answer>& answers);
std::string short_answers_text(const std::vector<ShortAnswerRow>& answers);

}  // namespace bnlab
