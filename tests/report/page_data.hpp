// Pages that draw the JSON inside them.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "harness/support/json.hpp"

namespace bnlab::test {

// The text between two marks.
inline std::string between(const std::string& page, const std::string& opening, const std::string& closing) {
  const size_t at = page.find(opening), begin = at + opening.size();
  EXPECT_NE(at, std::string::npos) << opening << " in " << page;
  return at == std::string::npos ? "" : page.substr(begin, page.find(closing, begin) - begin);
}

constexpr const char* kDataMark = "<script type=\"application/json\" id=\"data\">";

inline Json data_of(const std::string& page) {
  return Json::parse(between(page, kDataMark, "</script>"));
}

// Texts stay texts: none ends the element of the data, and the script makes elements of none. The browser
// runs no other script and loads nothing.
inline void expect_closed(const std::string& page) {
  const std::string data = between(page, kDataMark, "</script>");
  EXPECT_EQ(data.find('<'), std::string::npos) << data;
  std::string rest = page;
  rest.erase(page.find(data), data.size());
  EXPECT_EQ(between(rest, "script-src 'nonce-", "'"), between(rest, "<script nonce=\"", "\""));
  EXPECT_NE(rest.find("content=\"default-src 'none'; "), std::string::npos);
  for (const char* part : {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(",
                           "fetch(", "XMLHttp", "import", "src=", "href", "url(", "https:", "{{"})
    EXPECT_EQ(rest.find(part), std::string::npos) << part;
}

// The lines of `parts` stand in the page, one behind the other.
inline void expect_in_order(const std::string& page, const std::string& parts) {
  std::istringstream lines(parts);
  size_t place = 0;
  for (std::string part; std::getline(lines, part);) {
    const size_t found = page.find(part, place);
    ASSERT_NE(found, std::string::npos) << part << " in " << page;
    place = found + part.size();
  }
}

}  // namespace bnlab::test
