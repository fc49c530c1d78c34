// Pieces of pages; all text is escaped.
#pragma once

#include <string>

#include "harness/text_table.hpp"

namespace bnlab {

// <p class="soft">TEXT</p>
inline std::string html_element(const std::string& tag, const std::string& text,
                                const std::string& kind = "") {
  return "<" + tag + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">" + html_escape(text) + "</" + tag +
         ">\n";
}

}  // namespace bnlab
