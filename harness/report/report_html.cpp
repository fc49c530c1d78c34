// A report as one page that needs nothing else: no script, no font, no file beside it. Figures travel inside,
// as images, so that nothing in them is executed. All text is escaped.
#include <algorithm>
#include <set>

#include "harness/mapped.hpp"
#include "harness/report/comparison.hpp"
#include "harness/report/html.hpp"
#include "harness/report/report.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8886; --quiet: #8883; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; } .claim, figcaption, .notes { opacity: .75; }
.learned { font-size: 1.1rem; }
.wide { overflow-x: auto; background: linear-gradient(90deg, Canvas 2rem, #0000) left / 3rem 100%,
  linear-gradient(270deg, Canvas 2rem, #0000) right / 3rem 100%,
  linear-gradient(90deg, var(--line), #0000) left / .8rem 100%, linear-gradient(270deg, var(--line), #0000) right / .8rem 100%;
  background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
.wide:focus-visible { outline: 2px solid; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { border-bottom-width: 2px; } .number { text-align: right; } tbody tr:hover { background: var(--quiet); }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; padding: .5rem; border-radius: .3rem; }
pre { background: var(--quiet); padding: .7rem; border-radius: .3rem; overflow-x: auto; }
@media (max-width: 40rem) {
  body { margin: .5rem auto; } h1 { font-size: 1.4rem; }
  table { font-size: .8rem; } th, td { padding: .2rem .35rem; }
  td:not(.number) { overflow-wrap: break-word; max-width: 8rem; } .learned { font-size: .9rem; }
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
  std::string text = "<ul" + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">\n";
  for (const std::string& line : lines) text += html_element("li", line);
  return text + "</ul>\n";
}

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : html_element("h2", title) + body;
}

// A table that scrolls sideways where it has no room, by keyboard, too.
std::string wide(const TextTable& table, const std::string& name) {
  return "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"" + name + "\">" + table.html() +
         "</div>\n";
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

std::string figures_in(const fs::path& folder) {
  std::set<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".svg" && entry.is_regular_file()) files.insert(entry.path());
  std::string text;
  for (const fs::path& file : files) {
    const std::string name = html_escape(file.stem().string());
    const std::string svg = read_text(file), sentence = what_it_shows(svg, name);
    text += "<figure><img alt=\"" + sentence + "\" src=\"data:image/svg+xml;base64," + base64(svg) +
            "\"><figcaption>" + sentence + "</figcaption></figure>\n";
  }
  return text;
}

std::string environments(const std::vector<const Record*>& records) {
  TextTable table{{{"key"}, {"values"}}, {}};
  for (const auto& [key, values] : facts_of(records))
    table.rows.push_back({key, joined({values.begin(), values.end()}, "; ")});
  return table.rows.empty() ? "" : wide(table, "Environment");
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
  std::string body = html_element("h1", report.experiment) + html_element("p", report.question);
  if (!report.claim.empty()) body += html_element("p", "Claim: " + report.claim, "claim");
  for (const std::string& sentence : report.learned) body += html_element("p", sentence, "learned");
  body += html_element("p", progress_sentence(report));
  body += wide(cells_table(report), "Results");
  std::string contrasts;
  if (!report.contrasts.empty()) contrasts = wide(contrasts_table(report), "Declared comparisons");
  body += section("Declared comparisons", contrasts) + list_of(footnotes(report), "notes");
  std::string chosen;
  for (const TextTable& tuned : {tuning_table(report), length_table(report)})
    if (!tuned.rows.empty()) chosen += wide(tuned, "Settings");
  if (!chosen.empty()) body += section("Settings chosen beforehand", chosen);
  std::vector<std::string> stale;
  for (const auto& [reason, runs] : report.runs.stale_reasons)
    stale.push_back(std::to_string(runs) + " runs: " + reason);
  body += section("Stale runs", stale.empty() ? "" : list_of(stale));
  body += section("Figures", figures_in(figures));
  const std::vector<std::string> failures = failure_lines(report.runs.failures);
  body += section("Failed runs", failures.empty() ? "" : list_of(failures));
  body += section("How to repeat it", commands(records));
  body += section("Environment", environments(mapped(records, [](const Record& record) { return &record; })));
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; "
         "img-src data:\">\n" +
         html_element("title", report.experiment) + "<style>" + kStyle + "</style>\n</head>\n<body>\n" +
         body + "</body>\n</html>\n";
}

}  // namespace bnlab
