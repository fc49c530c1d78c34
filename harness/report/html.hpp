// Pieces of pages; all text is escaped.
#pragma once

#include <string>

#include "harness/support/text_table.hpp"

namespace bnlab {

// <p class="soft">TEXT</p>
inline std::string html_element(const std::string& tag, const std::string& text,
                                const std::string& kind = "") {
  return "<" + tag + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">" + html_escape(text) + "</" + tag +
         ">\n";
}

// A table that scrolls sideways where it has no room, by keyboard, too.
inline std::string html_wide(const TextTable& table, const std::string& name) {
  return "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"" + name + "\">" + table.html() +
         "</div>\n";
}

// A page that loads nothing: `policy` says what else may be in it, `head` and `body` are HTML.
inline std::string html_page(const std::string& title, const std::string& policy, const std::string& head,
                             const std::string& style, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; " +
         policy + "\">\n" + head + html_element("title", title) + "<style>" + style +
         "</style>\n</head>\n<body>\n" + body + "</body>\n</html>\n";
}

}  // namespace bnlab
