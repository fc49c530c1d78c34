#include "harness/cli/about.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "harness/strategy_facts.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr size_t kIndent = 4;
constexpr size_t kSummaryWidth = 50, kExchangesWidth = 33;  // so that the table fits 100 columns

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string default_text(const Parameter& parameter) {
  return parameter.required ? "needed" : parameter.fallback.dump();
}

// "a number in (0, 1] or null: weight of the new value"
std::string meaning(const Parameter& parameter) {
  return expectation(parameter) + ": " + parameter.help;
}

// The parameters with the fields of groups behind them, as "schedule.start" and "groups[].prefix".
std::vector<Parameter> with_fields(const std::vector<Parameter>& parameters, const std::string& prefix = "") {
  std::vector<Parameter> all;
  for (Parameter parameter : parameters) {
    parameter.name = prefix + parameter.name;
    const std::vector<Parameter> fields =
        with_fields(parameter.fields, parameter.name + (parameter.list ? "[]." : "."));
    all.push_back(std::move(parameter));
    all.insert(all.end(), fields.begin(), fields.end());
  }
  return all;
}

std::string value_text(const Parameter& parameter, const Json& chosen) {
  const auto value = chosen.find(parameter.name);
  if (value == chosen.end() || *value == parameter.fallback)
    return parameter.required ? "(needed)" : default_text(parameter);
  return value->dump() + (parameter.required ? "" : "  (default " + default_text(parameter) + ")");
}

std::string paragraph(const std::string& title, const std::string& text) {
  return text.empty() ? "" : wrapped(title + text, kIndent);
}

// Without texts where the entry is no strategy.
const StrategyFacts& facts_of_strategy(const About& about) {
  static const StrategyFacts none;
  const auto* facts = about.facts_as<StrategyFacts>();
  return facts == nullptr ? none : *facts;
}

// "`eps` (`1e-05`): a number > 0: added to the variance under the root", as Markdown.
std::string parameter_line(const Parameter& parameter) {
  return "`" + parameter.name + "` (" +
         (parameter.required ? "needed" : "`" + default_text(parameter) + "`") +
         "): " + markdown_escape(meaning(parameter)) + "\n";
}

constexpr int kMany = 4;  // entries that have a parameter alike: it is then explained once

// The lines of parameters that many entries have alike, in the order in which they first come.
std::vector<std::string> common_lines(const Entries& entries) {
  std::vector<std::string> lines;
  std::map<std::string, int> counts;
  for (const auto& [name, about] : entries) {
    for (const Parameter& parameter : with_fields(about.parameters())) {
      const std::string line = parameter_line(parameter);
      if (++counts[line] == 1) lines.push_back(line);
    }
  }
  std::erase_if(lines, [&](const std::string& line) { return counts.at(line) < kMany; });
  return lines;
}

bool say_what_they_exchange(const Entries& entries) {
  return std::ranges::any_of(
      entries, [](const auto& entry) { return !facts_of_strategy(entry.second).exchanges.empty(); });
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"strategies", "strategy"},
                                          {"models", "model"},
                                          {"backbones", "backbone"},
                                          {"tasks", "task"},
                                          {"augmentations", "augmentation"},
                                          {"optimizers", "optimizer"},
                                          {"losses", "loss"}};
  return all;
}

std::string about_text(const About& about, const Json& chosen) {
  const std::string indent(kIndent, ' ');
  const StrategyFacts& strategy = facts_of_strategy(about);
  std::string text = about.name + "\n" + paragraph("", about.summary);
  if (!strategy.formula.empty()) {
    text += indent + "computes:\n";
    for (const std::string& line : lines_of(strategy.formula)) text += indent + indent + line + "\n";
  }
  text += paragraph("exchanges per site and step: ", strategy.exchanges);
  text += paragraph("use it: ", strategy.use);
  text += paragraph("limits: ", strategy.limits);
  text += paragraph("source: ", about.source);
  if (!about.parameters().empty()) text += indent + "parameters:\n";
  for (const Parameter& parameter : with_fields(about.parameters())) {
    text += indent + indent + parameter.name + " = " + value_text(parameter, chosen) + "\n" +
            wrapped(meaning(parameter), 3 * kIndent);
  }
  return text;
}

Json about_json(const About& about) {
  const auto parameter_json = [](const Parameter& parameter) {
    return Json{{"name", parameter.name},
                {"default", parameter.required ? Json() : parameter.fallback},
                {"required", parameter.required},
                {"expected", expectation(parameter)},
                {"help", parameter.help}};
  };
  Json json = {{"name", about.name},
               {"summary", about.summary},
               {"source", about.source},
               {"parameters", mapped(with_fields(about.parameters()), parameter_json)}};
  const StrategyFacts& strategy = facts_of_strategy(about);
  if (!strategy.formula.empty()) json["formula"] = lines_of(strategy.formula);
  for (const auto& [key, text] :
       {std::pair("exchanges", strategy.exchanges), {"use", strategy.use}, {"limits", strategy.limits}}) {
    if (!text.empty()) json[key] = text;
  }
  return json;
}

std::string entries_text(const Entries& entries) {
  TextTable table{{{"name"}, {"what it does"}}, {}};
  if (!say_what_they_exchange(entries)) {
    for (const auto& [name, about] : entries) table.rows.push_back({name, about.summary});
    return table.text();
  }
  table.columns.push_back({"exchanges per site and step"});
  for (const auto& [name, about] : entries) {
    std::vector<std::string> summary = lines_of(wrapped(about.summary, 0, kSummaryWidth));
    std::vector<std::string> exchanges =
        lines_of(wrapped(facts_of_strategy(about).exchanges, 0, kExchangesWidth));
    const size_t lines = std::max({summary.size(), exchanges.size(), size_t{1}});
    summary.resize(lines);
    exchanges.resize(lines);
    for (size_t i = 0; i < lines; ++i) table.rows.push_back({i == 0 ? name : "", summary[i], exchanges[i]});
  }
  return table.text();
}

std::string entries_markdown(const Entries& entries) {
  const bool exchanges = say_what_they_exchange(entries);
  std::string table = exchanges ? "| name | what it does | exchanges per site and step | use it | source |\n"
                                  "|---|---|---|---|---|\n"
                                : "| name | what it does | source |\n|---|---|---|\n";
  const std::vector<std::string> common = common_lines(entries);
  std::string details;
  for (const auto& [name, about] : entries) {
    const StrategyFacts& strategy = facts_of_strategy(about);
    const std::string code = "`" + name + "`";
    std::vector<std::string> cells = {about.summary};
    if (exchanges) cells.insert(cells.end(), {strategy.exchanges, strategy.use});
    cells.push_back(about.source);
    table += "| " + code + " |";
    for (const std::string& cell : cells) table += " " + markdown_escape(cell) + " |";
    table += "\n";
    details +=
        "\n- " + code + (strategy.limits.empty() ? "" : ": " + markdown_escape(strategy.limits)) + "\n";
    std::vector<std::string> names;
    for (const Parameter& parameter : with_fields(about.parameters())) {
      const std::string line = parameter_line(parameter);
      if (std::ranges::find(common, line) == common.end())
        details += "  - " + line;
      else
        names.push_back("`" + parameter.name + "`");
    }
    if (!names.empty()) details += "  - " + joined(names) + ": as in the list below\n";
  }
  std::string shared;
  for (const std::string& line : common) shared += "- " + line;
  return table + "\nLimits, and parameters with their defaults:\n" + details +
         (shared.empty() ? "" : "\nParameters that many have alike:\n\n" + shared);
}

}  // namespace bnlab
