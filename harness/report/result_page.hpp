// What people write of an experiment: README.md in its folder of results, whose title is the finding.
#pragma once

#include <filesystem>
#include <string>

namespace bnlab {

inline constexpr const char* kResultPage = "README.md";

// Each paragraph without its mark, on one line; "" where there is none.
struct ResultPage {
  std::string title;        // the heading
  std::string question;     // "**Question.**", in short
  std::string advice;       // "**Advice.**"
  std::string how_sure;     // "**How sure.**": the word of evidence, and why
  std::string numbers;      // "**In numbers.**"
  std::string rests_on;     // "Rests on": the comparisons that the title rests on
  std::string seen_before;  // "**Seen before.**": earlier attempts
  std::string figure;       // the file of the first picture, "figures/matrix.png"
};

// Of a page without numbers, as of a folder without a page, nothing.
ResultPage read_result_page(const std::filesystem::path& folder);

// As it is read, its links without their targets.
std::string without_links(const std::string& markdown);

}  // namespace bnlab
