// Tables of text: aligned columns for a terminal, or Markdown.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace bnlab {

struct TextTable {
  struct Column {
    std::string title;   // may hold one line break, which Markdown shows as a space
    bool right = false;  // numbers are aligned to the right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // one entry per column each

  std::string text() const;
  std::string markdown() const;
};

// The columns that `text` takes on a terminal: UTF-8 continuation bytes take none.
size_t width(const std::string& text);

// Breaks `text` at spaces into lines of at most `most` bytes, each indented by `indent` spaces. A longer word
// keeps a line of its own.
std::string wrapped(const std::string& text, size_t indent = 0, size_t most = 100);

// `text` with the characters that Markdown would take for markup, or for the end of a cell, escaped.
std::string markdown_escape(const std::string& text);

// {{"crashed", 1}, {"oom", 2}} as "1 crashed, 2 oom".
std::string counts_text(const std::map<std::string, int>& counts);

std::string fixed(double value, int decimals);  // "0.712"; no "-0.000"; "-" for a number that is not finite
std::string significant(double value, int digits);  // "0.0312", "1.2e+06"; likewise

}  // namespace bnlab
