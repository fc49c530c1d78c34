// The tables of a report and the sentences around them, from which its text, Markdown and page are made.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/text_table.hpp"

namespace bnlab {

TextTable cells_table(const ExperimentReport& report);      // a row per cell and placement
TextTable contrasts_table(const ExperimentReport& report);  // no rows where none is declared
TextTable tuning_table(const ExperimentReport& report);     // no rows before settings are chosen

// What the tables cannot say by themselves.
std::vector<std::string> footnotes(const ExperimentReport& report);

// How much of the matrix is there.
std::string progress_sentence(const ExperimentReport& report);

}  // namespace bnlab
