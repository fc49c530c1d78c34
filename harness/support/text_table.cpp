#include "harness/support/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "harness/components/parameters.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

std::string padded(const std::string& text, size_t to, bool right) {
  const std::string space(to - std::min(to, width(text)), ' ');
  return right ? space + text : text + space;
}

// The upper (0) or lower (1) line of a title; a title of one line stands on the lower.
std::string title_line(const std::string& title, int line) {
  const size_t cut = title.find('\n');
  if (cut == std::string::npos) return line == 1 ? title : "";
  return line == 0 ? title.substr(0, cut) : title.substr(cut + 1);
}

std::string line_of(const std::vector<std::string>& cells) {
  const std::string line = joined(cells, "  ");
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    size_t most = std::max(width(title_line(columns[i].title, 0)), width(title_line(columns[i].title, 1)));
    for (const auto& row : rows) most = std::max(most, width(row[i]));
    widths.push_back(most);
  }
  std::string out;
  for (const int line : {0, 1}) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < columns.size(); ++i)
      cells.push_back(padded(title_line(columns[i].title, line), widths[i], columns[i].right));
    const std::string titles = line_of(cells);
    if (titles != "\n") out += titles;
  }
  out += line_of(mapped(widths, [](size_t most) { return std::string(most, '-'); }));
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < row.size(); ++i) cells.push_back(padded(row[i], widths[i], columns[i].right));
    out += line_of(cells);
  }
  return out;
}

std::string TextTable::markdown() const {
  std::string titles = "|", rule = "|", body;
  for (const Column& column : columns) {
    titles += " " + markdown_escape(column.title) + " |";
    rule += column.right ? "---:|" : "---|";
  }
  for (const auto& row : rows) {
    body += "|";
    for (const std::string& cell : row) body += " " + markdown_escape(cell) + " |";
    body += "\n";
  }
  return titles + "\n" + rule + "\n" + body;
}

std::string wrapped(const std::string& text, size_t indent, size_t most) {
  const std::string space(indent, ' ');
  const size_t room = most - indent;
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.size();
    if (end - begin > room) {
      end = text.rfind(' ', begin + room);
      if (end == std::string::npos || end <= begin) end = std::min(text.find(' ', begin), text.size());
    }
    out += space + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string markdown_escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string("\\`*[]<>|").find(c) != std::string::npos) escaped += '\\';
    escaped += c == '\n' || c == '\r' ? ' ' : c;
  }
  return escaped;
}

std::string counts_text(const std::map<std::string, int>& counts) {
  return joined(mapped(counts, [](const auto& of) { return std::to_string(of.second) + " " + of.first; }));
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  const bool is_zero = text.str().find_first_of("123456789") == std::string::npos;
  return is_zero && std::signbit(value) ? text.str().substr(1) : text.str();
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  std::ostringstream text;
  text << std::setprecision(digits) << value;
  return text.str();
}

}  // namespace bnlab
