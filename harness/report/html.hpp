// Pages in one file that loads nothing: an HTML file of the project whose script draws the JSON inside it.
#pragma once

#include <string>

#include "harness/experiment/fingerprint.hpp"
#include "harness/support/json.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {

inline Json table_json(const TextTable& table) {
  const auto column_json = [](const TextTable::Column& column) {
    return Json{{"title", column.title}, {"right", column.right}};
  };
  return {{"columns", mapped(table.columns, column_json)}, {"rows", table.rows}};
}

// The page with its data. They are written without `<`, so that no text ends the element around them, and the
// browser runs no script but the page's own, whose nonce follows from the data.
inline std::string page_with(const Json& data, std::string page) {
  std::string json;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace))
    json += c == '<' ? std::string("\\u003c") : std::string(1, c);
  const auto put = [&](const std::string& mark, const std::string& text) {
    page.replace(page.find(mark), mark.size(), text);
  };
  for (int i = 0; i < 2; ++i) put("{{nonce}}", fingerprint(json));
  put("{{data}}", json);
  return page;
}

}  // namespace bnlab
