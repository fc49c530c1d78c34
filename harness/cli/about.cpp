#include "harness/cli/about.hpp"

#include <algorithm>
#include <sstream>

#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

constexpr size_t kIndent = 4;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string default_text(const Parameter& parameter) {
  return parameter.required ? "needed" : parameter.fallback.dump();
}

// "weight of the new value: a number in (0, 1] or null"
std::string meaning(const Parameter& parameter) {
  return parameter.help + ": " + expectation(parameter);
}

std::string value_text(const Parameter& parameter, const Json& chosen) {
  const auto value = chosen.find(parameter.name);
  if (value == chosen.end() || *value == parameter.fallback) {
    return parameter.required ? "(needed)" : default_text(parameter);
  }
  return value->dump() + (parameter.required ? "" : "  (default " + default_text(parameter) + ")");
}

std::string paragraph(const std::string& title, const std::string& text) {
  return text.empty() ? "" : wrapped(title + text, kIndent);
}

bool say_what_they_exchange(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return !entry.second.exchanges.empty(); });
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"strategies", "strategy"},
                                          {"models", "model"},
                                          {"tasks", "task"},
                                          {"optimizers", "optimizer"},
                                          {"losses", "loss"}};
  return all;
}

std::string about_text(const About& about, const Json& chosen) {
  const std::string indent(kIndent, ' ');
  std::string text = about.name + "\n" + paragraph("", about.summary);
  if (!about.formula.empty()) {
    text += indent + "computes:\n";
    for (const std::string& line : lines_of(about.formula)) {
      text += indent + indent + line + "\n";
    }
  }
  text += paragraph("exchanges per site and step: ", about.exchanges);
  text += paragraph("use it: ", about.use);
  text += paragraph("limits: ", about.limits);
  text += paragraph("source: ", about.source);
  if (!about.parameters.empty()) {
    text += indent + "parameters:\n";
  }
  for (const Parameter& parameter : about.parameters) {
    text += indent + indent + parameter.name + " = " + value_text(parameter, chosen) + "\n" +
            wrapped(meaning(parameter), 3 * kIndent);
  }
  return text;
}

Json about_json(const About& about) {
  Json parameters = Json::array();
  for (const Parameter& parameter : about.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"default", parameter.required ? Json() : parameter.fallback},
                          {"required", parameter.required},
                          {"expected", expectation(parameter)},
                          {"help", parameter.help}});
  }
  Json json = {
      {"name", about.name}, {"summary", about.summary}, {"source", about.source}, {"parameters", parameters}};
  if (!about.formula.empty()) {
    json["formula"] = lines_of(about.formula);
  }
  for (const auto& [key, text] :
       {std::pair("exchanges", about.exchanges), {"use", about.use}, {"limits", about.limits}}) {
    if (!text.empty()) {
      json[key] = text;
    }
  }
  return json;
}

std::string entries_text(const Entries& entries) {
  const bool exchanges = say_what_they_exchange(entries);
  TextTable table{{{"name"}}, {}};
  if (exchanges) {
    table.columns.push_back({"exchanges per site and step"});
  }
  table.columns.push_back({"what it does"});
  for (const auto& [name, about] : entries) {
    table.rows.push_back({name});
    if (exchanges) {
      table.rows.back().push_back(about.exchanges);
    }
    table.rows.back().push_back(about.summary);
  }
  return table.text();
}

std::string entries_markdown(const Entries& entries) {
  const bool exchanges = say_what_they_exchange(entries);
  std::string table = exchanges ? "| name | what it does | exchanges per site and step | use it | source |\n"
                                  "|---|---|---|---|---|\n"
                                : "| name | what it does | source |\n|---|---|---|\n";
  std::string details;
  for (const auto& [name, about] : entries) {
    const std::string code = "`" + name + "`";
    std::vector<std::string> cells = {about.summary};
    if (exchanges) {
      cells.insert(cells.end(), {about.exchanges, about.use});
    }
    cells.push_back(about.source);
    table += "| " + code + " |";
    for (const std::string& cell : cells) {
      table += " " + markdown_escape(cell) + " |";
    }
    table += "\n";
    details += "\n- " + code + (about.limits.empty() ? "" : ": " + markdown_escape(about.limits)) + "\n";
    for (const Parameter& parameter : about.parameters) {
      details += "  - `" + parameter.name + "` (" +
                 (parameter.required ? "needed" : "`" + default_text(parameter) + "`") +
                 "): " + markdown_escape(meaning(parameter)) + "\n";
    }
  }
  return table + "\nLimits, and parameters with their defaults:\n" + details;
}

}  // namespace bnlab
