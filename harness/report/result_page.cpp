#include "harness/report/result_page.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <sstream>

#include "harness/support/printable.hpp"
#include "harness/support/text_file.hpp"

namespace bnlab {
namespace {

constexpr const char *kQuestion = "**Question.**", *kAdvice = "**Advice.**", *kHowSure = "**How sure.**",
                     *kInNumbers = "**In numbers.**", *kRestsOn = "Rests on",
                     *kSeenBefore = "**Seen before.**";

// What stands behind each mark, up to the next one or an empty line.
std::map<std::string, std::string> paragraphs_of(const std::string& page) {
  std::map<std::string, std::string> found;
  std::string* open = nullptr;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) open = nullptr;
    for (const std::string mark : {kQuestion, kAdvice, kHowSure, kInNumbers, kRestsOn, kSeenBefore}) {
      if (!line.starts_with(mark)) continue;
      open = &found[mark];
      line.erase(0, std::min(mark.size() + 1, line.size()));
    }
    if (open != nullptr) *open += (open->empty() ? "" : " ") + line;
  }
  return found;
}

}  // namespace

ResultPage read_result_page(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kResultPage;
  const std::string text = std::filesystem::exists(file) ? printable(read_text(file)) : "";
  std::map<std::string, std::string> found = paragraphs_of(text);
  if (found[kInNumbers].empty()) return {};
  std::smatch heading, picture;
  std::regex_search(text, heading, std::regex("^# (.*)"));
  std::regex_search(text, picture, std::regex(R"(!\[[^\]]*\]\(([^)]*)\))"));
  return {.title = heading[1],
          .question = found[kQuestion],
          .advice = found[kAdvice],
          .how_sure = found[kHowSure],
          .numbers = found[kInNumbers],
          .rests_on = found[kRestsOn],
          .seen_before = found[kSeenBefore],
          .figure = picture[1]};
}

std::string without_links(const std::string& markdown) {
  static const std::regex link(R"(\[([^\]]*)\]\([^)]*\))");
  return std::regex_replace(markdown, link, "$1");
}

}  // namespace bnlab
