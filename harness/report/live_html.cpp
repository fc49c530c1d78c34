#include "harness/report/live_html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "harness/report/html.hpp"
#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColours = 8;       // of lines; behind them the dashes change
constexpr size_t kMostPoints = 240;  // of a line
constexpr size_t kMostGroups = 24;   // that have charts

// Okabe and Ito's colours, darker or lighter where the background asks for it.
constexpr const char* kLiveStyle = R"(
:root { color-scheme: light dark; --line: #0003; --quiet: #0001; --text: #1b1b1b; --soft: #555; --page: #fff;
  --bad: #b3261e; --c0: #c44e00; --c1: #0072b2; --c2: #007a5a; --c3: #9a6a00; --c4: #1b7fae; --c5: #a8437c;
  --c6: #222; --c7: #6a5acd; }
@media (prefers-color-scheme: dark) { :root { --line: #fff4; --quiet: #fff1; --text: #eee; --soft: #b4b4b4;
  --page: #16181b; --bad: #ff8a80; --c0: #ff8b4d; --c1: #5ab4ec; --c2: #3fcf9f; --c3: #f0b840; --c4: #9fdcff;
  --c5: #f09ac8; --c6: #fff; --c7: #b3a6ff; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 76rem;
  margin: 0 auto; padding: 1rem; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: center; color: var(--soft); }
h1 { font-size: 1.5rem; margin: .4rem 0 0; } h2 { font-size: 1.1rem; margin: 1.4rem 0 .4rem; }
p { margin: .2rem 0; } .soft, figcaption { color: var(--soft); } .bad { color: var(--bad); }
progress { width: 100%; height: .7rem; accent-color: var(--c1); }
.runs { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); padding: 0;
  margin: 0; list-style: none; }
.runs li { border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .7rem; overflow-wrap: anywhere; }
.charts { display: grid; gap: .4rem 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; } svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); stroke-width: .6; } .curve { fill: none; stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0; margin: .2rem 0; list-style: none; }
.legend svg { display: inline-block; width: 2.2rem; height: .8rem; vertical-align: middle; }
.wide { overflow-x: auto; } .wide:focus-visible, button:focus-visible { outline: 3px solid var(--c1); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
@media (max-width: 30rem) { table { font-size: .85rem; } td:first-child { overflow-wrap: anywhere; min-width: 6rem; } }
td.number, th.number { text-align: right; white-space: nowrap; }
button { font: inherit; color: inherit; background: var(--quiet); border: 1px solid var(--line); border-radius: .3rem;
  padding: .1rem .7rem; min-height: 2rem; }
)";

// Loads the page again and keeps the place that was read; the button stops it. Without scripts the page does
// so by itself (the noscript element).
constexpr const char* kLiveScript = R"(
const button = document.getElementById('pause'), store = {
  get: k => { try { return sessionStorage.getItem('bnlab ' + k); } catch { return null; } },
  set: (k, v) => { try { sessionStorage.setItem('bnlab ' + k, v); } catch {} } };
let paused = store.get('paused') === '1';
const show = () => { button.textContent = paused ? 'Go on' : 'Pause'; };
button.hidden = false;
button.onclick = () => { paused = !paused; store.set('paused', paused ? '1' : '0'); show(); };
show();
const places = [...document.querySelectorAll('button, [tabindex]')];
const place = store.get('focus');
if (place !== null && places[place]) places[place].focus({preventScroll: true});
setInterval(() => {
  if (paused || document.hidden) return;
  store.set('focus', places.indexOf(document.activeElement));
  location.reload();
}, REFRESH_MS);
)";

std::string value_text(double value) {
  return significant(value, 4);
}

// Steps of 1, 2 or 5 times a power of ten, about `count` of them from low to high.
std::vector<double> ticks(double low, double high, int count) {
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
  std::vector<double> found;
  for (double at = std::ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step)
    found.push_back(std::abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

// At most kMostPoints of a line, the last one among them.
RunCurve::Points thinned(const RunCurve::Points& points) {
  if (points.size() <= kMostPoints) return points;
  RunCurve::Points kept;
  for (size_t i = 1; i <= kMostPoints; ++i) kept.push_back(points[i * points.size() / kMostPoints - 1]);
  return kept;
}

// How the lines of a strategy look, by its place among all.
std::string look(size_t place) {
  constexpr std::array kDashes = {"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""};
  return "stroke=\"var(--c" + std::to_string(place % kColours) + ")\"" +
         kDashes[place / kColours % kDashes.size()];
}

using Places = std::map<std::string, size_t>;  // strategy -> its place

std::string run_title(const RunCurve& run, const RunCurve::Points& points) {
  return run.strategy + ", seed " + std::to_string(run.seed) + ": " + value_text(points.back().second) +
         " at step " + std::to_string(points.back().first) +
         (!run.ended                 ? ", under way"
          : *run.ended == Status::ok ? ""
                                     : ", " + name_of(*run.ended));
}

// "sync 0.31 (3 runs), none 1.2 (1 run)": the means of the last values, for those who do not see the lines.
std::string last_values(const std::vector<const RunCurve*>& runs, RunCurve::Points RunCurve::* which,
                        const Places& places) {
  std::vector<std::string> texts;
  for (const auto& [strategy, unused] : places) {
    double sum = 0;
    int count = 0;
    for (const RunCurve* run : runs) {
      if (run->strategy != strategy || (run->*which).empty()) continue;
      sum += (run->*which).back().second;
      ++count;
    }
    if (count > 0) {
      texts.push_back(strategy + " " + value_text(sum / count) + " (" + std::to_string(count) +
                      (count == 1 ? " run)" : " runs)"));
    }
  }
  return joined(texts);
}

// One quantity of a group's runs against the step; "" where nothing was measured.
std::string chart(const std::string& title, const std::vector<const RunCurve*>& runs,
                  RunCurve::Points RunCurve::* which, const Places& places) {
  constexpr double kWidth = 460, kHeight = 240, kLeft = 50, kRight = 14, kTop = 10, kBottom = 30;
  double low = INFINITY, high = -INFINITY;
  int64_t last = 1;
  for (const RunCurve* run : runs) {
    for (const auto& [step, value] : run->*which) {
      low = std::min(low, value);
      high = std::max(high, value);
      last = std::max(last, step);
    }
  }
  if (low > high) return "";
  if (high - low < 1e-9 * std::max(1.0, std::abs(high))) {
    low -= 0.5;
    high += 0.5;
  }
  const auto x = [&](double step) {
    return kLeft + step / static_cast<double>(last) * (kWidth - kLeft - kRight);
  };
  const auto y = [&](double value) {
    return kTop + (high - value) / (high - low) * (kHeight - kTop - kBottom);
  };
  const auto at = [](double value) { return fixed(value, 1); };
  std::string svg = "<figure><figcaption>" + html_escape(title) +
                    "</figcaption><svg role=\"img\" viewBox=\"0 0 " + at(kWidth) + " " + at(kHeight) +
                    "\" aria-label=\"" +
                    html_escape(title + " by step, last: " + last_values(runs, which, places)) + "\">\n";
  for (const double tick : ticks(low, high, 4)) {
    svg += "<line class=\"grid\" x1=\"" + at(kLeft) + "\" x2=\"" + at(kWidth - kRight) + "\" y1=\"" +
           at(y(tick)) + "\" y2=\"" + at(y(tick)) + "\"/><text text-anchor=\"end\" x=\"" + at(kLeft - 6) +
           "\" y=\"" + at(y(tick) + 4) + "\">" + value_text(tick) + "</text>\n";
  }
  for (const double tick : ticks(0, static_cast<double>(last), 4)) {
    svg += "<text text-anchor=\"middle\" x=\"" + at(x(tick)) + "\" y=\"" + at(kHeight - kBottom + 16) +
           "\">" + value_text(tick) + "</text>\n";
  }
  svg += "<text text-anchor=\"end\" x=\"" + at(kWidth - kRight) + "\" y=\"" + at(kHeight - 2) +
         "\">step</text>\n";
  for (const RunCurve* run : runs) {
    const RunCurve::Points points = thinned(run->*which);
    if (points.empty()) continue;
    std::string path;
    for (const auto& [step, value] : points)
      path += (path.empty() ? "M" : "L") + at(x(static_cast<double>(step))) + " " + at(y(value));
    const bool live = !run->ended, failed = run->ended && *run->ended != Status::ok;
    const std::string stroke = look(places.at(run->strategy));
    const auto& [step, value] = points.back();
    const std::string tip = html_escape(run_title(*run, points));
    svg += "<g><title>" + tip + "</title><path class=\"curve\" " + stroke + " stroke-width=\"" +
           (live ? "2.2" : "1.2") + "\" opacity=\"" + (live || failed ? "1" : "0.6") + "\" d=\"" + path +
           "\"/>";
    if (failed) {
      svg += "<text text-anchor=\"middle\" x=\"" + at(x(static_cast<double>(step))) + "\" y=\"" +
             at(y(value) + 4) + "\">\u00d7</text>";
    } else if (live || points.size() == 1) {
      svg += "<circle r=\"3\" cx=\"" + at(x(static_cast<double>(step))) + "\" cy=\"" + at(y(value)) +
             "\" fill=\"var(--c" + std::to_string(places.at(run->strategy) % kColours) + ")\"/>";
    }
    svg += "</g>\n";
  }
  return svg + "</svg></figure>\n";
}

Places places_of(const LiveExperiment& experiment) {
  Places places;
  const auto add = [&](const std::string& strategy) { places.emplace(strategy, places.size()); };
  if (experiment.report)
    for (const ReportCell& cell : experiment.report->cells) add(cell.strategy);
  for (const RunCurve& run : experiment.curves) add(run.strategy);
  return places;
}

std::string legend(const std::vector<RunCurve>& curves, const Places& places) {
  std::set<std::pair<size_t, std::string>> shown;
  for (const RunCurve& run : curves) shown.insert({places.at(run.strategy), run.strategy});
  std::string text = "<ul class=\"legend\" aria-label=\"Strategies\">\n";
  for (const auto& [place, strategy] : shown) {
    text += "<li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\"><path d=\"M1 6L35 6\" stroke-width=\"3\" " +
            look(place) + "/></svg> " + html_escape(strategy) + "</li>\n";
  }
  return text + "</ul>\n";
}

// Groups with runs under way first.
std::string charts(const LiveExperiment& experiment) {
  if (experiment.curves.empty()) return "";
  std::map<std::string, std::vector<const RunCurve*>> groups;
  std::vector<std::string> order;
  for (const bool live : {true, false}) {
    for (const RunCurve& run : experiment.curves) {
      if (run.ended.has_value() == live) continue;
      if (groups[run.group].empty()) order.push_back(run.group);
      groups[run.group].push_back(&run);
    }
  }
  const Places places = places_of(experiment);
  std::string text = html_element("h2", "Curves, a line per seed") + legend(experiment.curves, places);
  for (size_t i = 0; i < std::min(order.size(), kMostGroups); ++i) {
    const auto& runs = groups[order[i]];
    const std::string pair = chart("loss", runs, &RunCurve::loss, places) +
                             chart(experiment.metric, runs, &RunCurve::metric, places);
    if (pair.empty()) continue;
    if (order.size() > 1) text += html_element("h3", order[i]);
    text += "<div class=\"charts\">\n" + pair + "</div>\n";
  }
  if (order.size() > kMostGroups) {
    text += html_element(
        "p", std::to_string(order.size() - kMostGroups) + " more groups of cells have no charts here",
        "soft");
  }
  return text;
}

std::string under_way(const LiveExperiment& experiment) {
  if (experiment.under_way.empty()) return "";
  std::string text = html_element("h2", "Under way") + "<ul class=\"runs\">\n";
  for (const LiveRun& run : experiment.under_way) {
    text += "<li>" + html_element("strong", run.run_id) + html_element("p", run.placement, "soft");
    if (run.share) {
      const std::string share = fixed(100 * std::min(1.0, *run.share), 0);
      text += "<progress max=\"100\" value=\"" + share + "\" aria-label=\"" + share + " % done\"></progress>";
    }
    text += html_element("p", step_text(run));
    if (!run.loss.empty()) text += html_element("p", "loss " + value_text(run.loss.back()));
    if (!run.metric_values.empty())
      text += html_element("p", run.metric + " " + value_text(run.metric_values.back()));
    if (const std::string faults = faults_text(run); !faults.empty())
      text += html_element("p", faults, "bad");
    text += "</li>\n";
  }
  return text + "</ul>\n";
}

// Cells of which some run has ended.
std::string finished_cells(const ExperimentReport& report) {
  TextTable table{{{"cell"}, {"n", true}, {report.headline, true}, {"images/s", true}}, {}};
  for (const ReportCell& cell : report.cells) {
    const int ok = cell.scores.count(Status::ok), missing = cell.scores.count(std::nullopt);
    const auto asked = static_cast<int>(cell.scores.outcomes.size());
    if (missing == asked) continue;
    const auto values = cell.scores.values.find("saved");
    const Interval score = values == cell.scores.values.end() ? Interval{} : over_seeds(values->second);
    std::vector<std::string> speeds;
    for (const ReportRow& row : cell.rows)
      if (const auto speed = row.claimed_images_per_s()) speeds.push_back(value_text(*speed));
    table.rows.push_back({joined(cell.cell),
                          std::to_string(ok) + (ok < asked ? "/" + std::to_string(asked) : ""),
                          plus_minus(score), joined(speeds)});
  }
  if (table.rows.empty()) return "";
  return html_element("h2", "Finished cells") + html_wide(table, "Finished cells") +
         html_element(
             "p",
             "Means over n seeds; \u00b1 is the half-width of their 95 % t interval. images/s only where "
             "it counts.",
             "soft");
}

std::string failed_runs(const ExperimentStatus& status) {
  if (status.failures.empty() && status.problems.empty()) return "";
  std::string text = html_element("h2", "Failed runs") + "<ul>\n";
  for (const std::string& line : failure_lines(status.failures)) text += html_element("li", line);
  for (const std::string& problem : status.problems) text += html_element("li", problem);
  return text + "</ul>\n";
}

std::string counts(const LiveExperiment& experiment) {
  const ExperimentStatus& status = experiment.status;
  const auto live = static_cast<int>(experiment.under_way.size());
  std::vector<std::string> texts = {std::to_string(status.ok()) + " of " + std::to_string(status.asked) +
                                    " runs ok"};
  if (status.failed > 0) texts.push_back(std::to_string(status.failed) + " failed");
  if (live > 0) texts.push_back(std::to_string(live) + " under way");
  const int rest = status.missing() - live;
  if (rest > 0) texts.push_back(std::to_string(rest) + " not begun");
  return "<p>" + html_escape(joined(texts)) + "</p><progress max=\"" +
         std::to_string(std::max(1, status.asked)) + "\" value=\"" + std::to_string(status.finished) +
         "\" aria-label=\"runs that have ended\"></progress>\n";
}

std::string section_of(const LiveExperiment& experiment) {
  std::string text = "<section>\n" + html_element("h1", experiment.status.experiment);
  if (experiment.report) text += html_element("p", experiment.report->question, "soft");
  text += counts(experiment) + under_way(experiment) + failed_runs(experiment.status) + charts(experiment);
  if (experiment.report) text += finished_cells(*experiment.report);
  return text + "</section>\n";
}

// That only the page's own script is run.
std::string new_nonce() {
  std::random_device random;
  std::string nonce;
  for (int i = 0; i < 4; ++i) nonce += std::to_string(random());
  return nonce;
}

RunCurve::Points points_of(const std::vector<int64_t>& steps, const std::vector<double>& values) {
  RunCurve::Points points;
  for (size_t i = 0; i < values.size(); ++i) points.emplace_back(steps[i], values[i]);
  return points;
}

}  // namespace

LiveExperiment LiveView::look(const std::string& name, const fs::path& results,
                              const Experiment* experiment) {
  LiveExperiment seen;
  std::map<std::string, std::string> groups;  // by run id
  if (experiment != nullptr) {
    const std::vector<CellColumn> columns = columns_of(*experiment);
    for (const RunSpec& run : experiment->runs) groups[run.id] = name_of(run, columns).group;
  }
  const auto add = [&](const LiveRun& run, const std::string& strategy, uint64_t seed,
                       std::optional<Status> ended) {
    const auto group = groups.find(run.run_id);
    if (experiment != nullptr && group == groups.end()) return;  // of an earlier spec
    if (seen.metric.empty()) seen.metric = run.metric;
    seen.curves.push_back({strategy, group == groups.end() ? "all" : group->second, seed, ended,
                           points_of(run.loss_steps, run.loss),
                           points_of(run.metric_steps, run.metric_values)});
  };
  seen.under_way = live_runs(results, name);
  for (const LiveRun& run : seen.under_way)
    add(run, run.strategy.empty() ? run.run_id : run.strategy, run.seed.value_or(0), std::nullopt);
  std::vector<std::string> damaged = mapped(seen.under_way, &LiveRun::damaged);
  const std::vector<Record> records = list_records(results, name);
  std::set<std::string> counted;  // a run once, whatever its placements
  for (const Record& record : records) {
    const fs::path folder = record.folder();
    if (!counted.insert(record.run_id()).second) continue;
    const std::string key = folder.string() + '\n' + record.at("started_at").dump();
    const auto known = ended_.find(key);
    const LiveRun run = known != ended_.end() ? known->second : run_in(name, folder);
    if (record.finished()) ended_.emplace(key, run);  // another one may go on
    add(run, record.strategy_label(), record.seed(), record.status());
    damaged.push_back(run.damaged);
  }
  seen.status = experiment != nullptr ? status_of(*experiment, results) : status_of(name, results);
  if (experiment != nullptr) {
    try {
      seen.report = make_report(*experiment, records, kept_declarations(results, name));
    } catch (const Error& error) {
      damaged.emplace_back(error.what());
    }
  }
  std::vector<std::string>& problems = seen.status.problems;
  for (const std::string& problem : damaged)
    if (!problem.empty() && std::ranges::count(problems, problem) == 0) problems.push_back(problem);
  return seen;
}

std::string live_html(const std::vector<LiveExperiment>& experiments, double refresh_s) {
  const std::string nonce = new_nonce();
  const bool refreshes = refresh_s > 0;
  std::string body = "<header><span>bnlab watch, " + html_escape(now_utc()) + "</span>" +
                     (refreshes ? "<span>every " + significant(refresh_s, 3) +
                                      " s</span><button id=\"pause\" hidden>Pause</button>"
                                : "<span>ended</span>") +
                     "</header>\n<main>\n";
  for (const LiveExperiment& experiment : experiments) body += section_of(experiment);
  body += "</main>\n";
  std::string title =
      joined(mapped(experiments, [](const LiveExperiment& each) { return each.status.experiment; }));
  if (experiments.size() == 1) {
    const ExperimentStatus& status = experiments[0].status;
    title = std::to_string(status.finished) + "/" + std::to_string(status.asked) + " " + title;
  }
  if (refreshes) {
    std::string script = kLiveScript;
    const std::string placeholder = "REFRESH_MS";
    script.replace(script.find(placeholder), placeholder.size(),
                   std::to_string(static_cast<int64_t>(std::max(1000.0, refresh_s * 1000))));
    body += "<script nonce=\"" + nonce + "\">" + script + "</script>\n";
  }
  const std::string refresh = "<noscript><meta http-equiv=\"refresh\" content=\"" +
                              significant(std::max(1.0, refresh_s), 3) + "\"></noscript>\n";
  return html_page(title, "script-src 'nonce-" + nonce + "'", refreshes ? refresh : "", kLiveStyle, body);
}

}  // namespace bnlab
