// A report as one page that needs nothing else: no script, no font, no file beside it. Figures travel inside,
// as images, so that nothing in them is executed. All text is escaped.
#include <algorithm>
#include <iostream>
#include <regex>
#include <set>

#include "harness/report/comparison.hpp"
#include "harness/report/html.hpp"
#include "harness/report/report.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8886; --quiet: #8883; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; line-height: 1.2; } h2 { font-size: 1.1rem; } .quiet, figcaption, .notes { opacity: .75; }
.answer { font-size: 1.1rem; } details { margin-top: 1rem; } summary { font-weight: 600; cursor: pointer; }
code { background: var(--quiet); border-radius: .2rem; padding: 0 .2rem; }
.wide { overflow-x: auto; background: linear-gradient(90deg, Canvas 2rem, #0000) left / 3rem 100%,
  linear-gradient(270deg, Canvas 2rem, #0000) right / 3rem 100%,
  linear-gradient(90deg, var(--line), #0000) left / .8rem 100%, linear-gradient(270deg, var(--line), #0000) right / .8rem 100%;
  background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
.wide:focus-visible { outline: 2px solid; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { border-bottom-width: 2px; } .number { text-align: right; } tbody tr:hover { background: var(--quiet); }
figure { margin: 1rem 0; overflow-x: auto; } img { max-width: 100%; background: #fff; padding: .5rem; border-radius: .3rem; }
pre { background: var(--quiet); padding: .7rem; border-radius: .3rem; overflow-x: auto; }
@media (max-width: 40rem) {
  body { margin: .5rem auto; } h1 { font-size: 1.4rem; }
  table { font-size: .8rem; } th, td { padding: .2rem .35rem; }
  td:not(.number) { overflow-wrap: break-word; max-width: 8rem; } .answer { font-size: 1rem; }
  img { max-width: 42rem; }
}
)";

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

std::string list_of(const std::vector<std::string>& lines, const std::string& kind = "") {
  if (lines.empty()) return "";
  std::string text = "<ul" + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">\n";
  for (const std::string& line : lines) text += html_element("li", line);
  return text + "</ul>\n";
}

// What is folded until somebody asks for it.
std::string folded(const std::string& title, const std::string& body) {
  return body.empty() ? "" : "<details>\n" + html_element("summary", title) + body + "</details>\n";
}

// Words of a result page between two tags, with their code set apart.
std::string written(const std::string& opening, const std::string& markdown, const std::string& closing) {
  static const std::regex code("`([^`]*)`");
  if (markdown.empty()) return "";
  return opening + std::regex_replace(html_escape(without_links(markdown)), code, "<code>$1</code>") +
         closing + "\n";
}

// The sentence that scripts/plot.sh writes into a figure, else the figure's name. It is escaped there as
// text, not as an attribute, and the file may be of anybody.
std::string what_it_shows(const std::string& svg, const std::string& name) {
  const std::string opening = "<dc:description>";
  const size_t begin = svg.find(opening), end = svg.find("</dc:description>");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return name;
  std::string text;
  for (const char c : svg.substr(begin + opening.size(), end - begin - opening.size()))
    text += c == '&' ? std::string(1, c) : html_escape(std::string(1, c));
  return text;
}

std::vector<fs::path> figures_in(const fs::path& folder) {
  std::set<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".svg" && entry.is_regular_file()) files.insert(entry.path());
  return {files.begin(), files.end()};
}

// A figure is made for paper. On a screen it is a third larger, and scrolls sideways where that has no room.
std::string size_of(const std::string& svg) {
  static const std::regex width(R"(<svg[^>]* width="([\d.]+)pt")");
  std::smatch found;
  const std::string head = svg.substr(0, 1000);
  return std::regex_search(head, found, width) ? " style=\"width: calc(1.35 * " + found[1].str() + "pt)\""
                                               : "";
}

std::string figure_element(const fs::path& file) {
  const std::string svg = read_text(file), sentence = what_it_shows(svg, html_escape(file.stem().string()));
  return "<figure><img" + size_of(svg) + " alt=\"" + sentence + "\" src=\"data:image/svg+xml;base64," +
         base64(svg) + "\"><figcaption>" + sentence + "</figcaption></figure>\n";
}

std::string environments(const std::vector<const Record*>& records) {
  TextTable table{{{"key"}, {"values"}}, {}};
  for (const auto& [key, values] : facts_of(records))
    table.rows.push_back({key, joined({values.begin(), values.end()}, "; ")});
  return table.rows.empty() ? "" : html_wide(table, "Environment");
}

std::string commands(const std::vector<Record>& records) {
  std::set<std::string> typed;
  for (const Record& record : records)
    if (record.at("command").is_string()) typed.insert(record.at("command").get<std::string>());
  return typed.empty() ? "" : html_element("pre", joined({typed.begin(), typed.end()}, "\n"));
}

}  // namespace

std::string report_html(const ExperimentReport& report, const std::vector<Record>& records,
                        const fs::path& figures) {
  const ResultPage& page = report.page;
  const std::string title = page.title.empty() ? report.experiment : page.title;
  std::vector<fs::path> drawn = figures_in(figures);
  if (drawn.empty()) {
    std::cerr << "note: the page has no figures, since none are in " << figures.string() << "; "
              << shell_command("scripts/plot.sh", {figures.parent_path().string()})
              << " draws them, then make it again\n";
  }
  const auto shown = std::ranges::find(drawn, fs::path(page.figure).stem(), &fs::path::stem);
  if (shown != drawn.end()) std::rotate(drawn.begin(), shown, shown + 1);
  std::string body = written("<h1>", title, "</h1>") +
                     html_element("p", report.experiment + ": " + report.question, "quiet") +
                     written("<p class=\"answer\"><b>Advice.</b> ", page.advice, "</p>") +
                     written("<p class=\"answer\"><b>How sure.</b> ", page.how_sure, "</p>");
  if (!drawn.empty()) body += figure_element(drawn.front());
  body += written("<p><b>In numbers.</b> ", page.numbers, "</p>");
  if (const MainTable main = main_table(report); !main.note.empty())
    body += html_wide(main.table, "Main results") + html_element("p", main.note, "quiet");
  for (const std::string& sentence : report.learned) body += html_element("p", sentence);
  if (!report.claim.empty())
    body += html_element("h2", "Expected beforehand") + html_element("p", report.claim);
  body += html_element("p", progress_sentence(report));
  std::vector<std::string> notes = footnotes(report);
  if (!report.leaders.empty()) notes.push_back(report.leaders);
  body += folded("All numbers", html_wide(cells_table(report), "Results") + list_of(notes, "notes"));
  if (!report.contrasts.empty())
    body += folded("Declared comparisons", html_wide(contrasts_table(report), "Declared comparisons"));
  std::string chosen;
  for (const TextTable& tuned : {tuning_table(report), length_table(report)})
    if (!tuned.rows.empty()) chosen += html_wide(tuned, "Settings");
  body += folded("Settings chosen beforehand", chosen);
  std::vector<std::string> stale;
  for (const auto& [reason, runs] : report.runs.stale_reasons)
    stale.push_back(std::to_string(runs) + " runs: " + reason);
  body += folded("Stale runs", list_of(stale)) +
          folded("Failed runs", list_of(failure_lines(report.runs.failures)));
  std::string more;
  for (size_t i = 1; i < drawn.size(); ++i) more += figure_element(drawn[i]);
  body += folded("More figures", more) + folded("How to repeat it", commands(records)) +
          folded("Environment", environments(mapped(records, [](const Record& record) { return &record; })));
  return html_page(title, "img-src data:", "", kStyle, body);
}

}  // namespace bnlab
