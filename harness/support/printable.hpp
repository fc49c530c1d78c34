// Text of unknown origin on its way to a terminal or a page.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace bnlab {

// How many bytes the control character at the start of `text` has: 0 if there is none. Line feeds and tabs
// count for none. In UTF-8 those from U+0080 to U+009F have two bytes.
inline size_t control_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (text.empty() || byte(0) == '\n' || byte(0) == '\t') return 0;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  return byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;
}

// The same text with its control characters written as \u001b, so that it can do nothing to a terminal, and
// JSON stays JSON.
inline std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = control_length(text);
    if (length == 0) {
      shown += text.front();
    } else {
      std::array<char, 7> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned char>(text[length - 1]));
      shown += escape.data();
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return shown;
}

}  // namespace bnlab
