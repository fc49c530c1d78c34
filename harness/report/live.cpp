#include "harness/report/live.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>
#include <texts/live_page.hpp>

#include "harness/report/html.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/printable.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// Beside the log: what the launcher asked of the ranks.
constexpr const char* kJobFile = "job.json";

Json job_of(const fs::path& folder, std::string& damaged) {
  static const Json schema = {{"properties", {{"spec", record_schema().at("properties").at("spec")}}},
                              {"$defs", record_schema().at("$defs")}};
  if (!fs::exists(folder / kJobFile)) return nullptr;
  try {
    return read_json(folder / kJobFile, schema, Keys::any);
  } catch (const Error& error) {
    if (damaged.empty()) damaged = error.what();
    return nullptr;
  }
}

double seconds_since_written(const fs::path& folder) {
  std::error_code none;
  fs::file_time_type latest = fs::last_write_time(folder, none);
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    std::error_code gone;
    const auto written = entry.last_write_time(gone);
    if (!gone) latest = std::max(latest, written);
  }
  const auto age = std::chrono::duration<double>(fs::file_time_type::clock::now() - latest);
  return std::max(0.0, age.count());
}

void read_evaluation(const Json& line, LiveRun& run) {
  for (const auto& [metric, value] : value_at(line, "metrics").items()) {
    if (!value.is_number()) continue;
    const std::string split = line.contains("split") ? line.at("split").get<std::string>() + " " : "";
    const std::string known = split + line.value("population", "saved") + " " + metric;
    if (run.metric_name.empty()) run.metric_name = known;
    if (run.metric_name == known) run.metric.emplace_back(run.step, value.get<double>());
  }
}

void read_line(const Json& line, LiveRun& run, double& epoch) {
  run.elapsed_s = line.value("time_s", run.elapsed_s);
  run.step = line.value("step", run.step);
  if (const Json& there = value_at(line, "epoch"); there.is_number()) epoch = there.get<double>();
  const std::string kind = line.value("kind", "");
  if (kind == "eval") read_evaluation(line, run);
  if (kind != "train") return;
  const Json& loss = value_at(line, "loss");
  if (loss.is_number()) run.loss.emplace_back(run.step, loss.get<double>());
  run.fault = loss.is_number() ? "" : "the loss is not finite";
}

constexpr double kQuiet = 300;  // seconds without a word after which a run may be dead

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

// "step 120/300  12 s left".
std::string step_text(const LiveRun& run) {
  std::string text = "step " + std::to_string(run.step);
  if (run.steps) text += "/" + std::to_string(*run.steps);
  if (const auto left = run.seconds_left()) text += "  " + time_text(*left) + " left";
  return text;
}

// What seems wrong with it; "" if nothing does.
std::string faults_text(const LiveRun& run) {
  const bool is_quiet = !run.ended && run.quiet_s > kQuiet;
  std::vector<std::string> faults = {
      run.fault, is_quiet ? "no word for " + time_text(run.quiet_s) + ": it may be dead" : "", run.damaged};
  std::erase(faults, "");
  return joined(faults, "; ");
}

LiveRun run_in(const std::string& experiment, const fs::path& folder) {
  LiveRun run;
  run.experiment = experiment;
  run.run_id = run.strategy = folder.parent_path().filename().string();
  run.placement = placement_of(folder);
  double epoch = 0;
  run.damaged = read_metrics(folder, [&](const Json& line) { read_line(line, run, epoch); });
  const Json job = job_of(folder, run.damaged);
  const Json &steps = value_at(job, "spec.steps"), &epochs = value_at(job, "spec.epochs");
  if (steps.is_number_integer() && steps > 0) {
    run.steps = steps.get<int64_t>();
    run.share = static_cast<double>(run.step) / static_cast<double>(*run.steps);
  } else if (epochs.is_number() && epochs > 0) {
    run.share = epoch / epochs.get<double>();
  }
  const Json &strategy = value_at(job, "spec.strategy"), &seed = value_at(job, "spec.seed");
  if (strategy.is_object() && strategy.contains("name")) run.strategy = label(strategy);
  if (seed.is_number_unsigned()) run.seed = seed.get<uint64_t>();
  run.quiet_s = seconds_since_written(folder);
  return run;
}

// Each run once, whatever its placements.
std::vector<LiveRun> ended_runs(const std::string& name, const std::vector<Record>& records,
                                EndedRuns& known) {
  std::vector<LiveRun> runs;
  std::set<std::string> counted;
  for (const Record& record : records) {
    if (!counted.insert(record.run_id()).second) continue;
    const std::string key = record.folder().string() + '\n' + record.at("started_at").dump();
    const auto found = known.find(key);
    LiveRun run = found != known.end() ? found->second : run_in(name, record.folder());
    run.strategy = record.strategy_label();
    run.seed = record.seed();
    run.ended = record.status();
    if (record.finished()) known.emplace(key, run);  // another one may go on
    runs.push_back(std::move(run));
  }
  return runs;
}

// At most `width` columns of a line; UTF-8 continuation bytes take none.
std::string clipped(const std::string& line, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < line.size(); ++i)
    if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80 && columns++ == width) return line.substr(0, i);
  return line;
}

std::string last_text(const LiveRun::Points& points) {
  return significant(points.back().second, 4);
}

std::string curve_line(const std::string& title, const LiveRun::Points& points, size_t width) {
  constexpr size_t kTitle = 18, kNumber = 10;
  if (points.empty()) return "";
  const size_t room = width > kTitle + kNumber + 8 ? std::min<size_t>(width - kTitle - kNumber, 60) : 8;
  std::string padded = "  " + title;
  padded.resize(std::max(padded.size(), kTitle), ' ');
  return padded + sparkline(mapped(points, &LiveRun::Points::value_type::second), room) + "  " +
         last_text(points);
}

// Few enough points to draw, the last one among them.
LiveRun::Points thinned(const LiveRun::Points& points) {
  constexpr size_t kMost = 240;
  if (points.size() <= kMost) return points;
  LiveRun::Points kept;
  for (size_t i = 1; i <= kMost; ++i) kept.push_back(points[i * points.size() / kMost - 1]);
  return kept;
}

Json run_json(const LiveRun& run) {
  return {{"id", run.run_id},
          {"placement", run.placement},
          {"strategy", run.strategy},
          {"group", run.group},
          {"seed", run.seed},
          {"ended", run.ended ? Json(name_of(*run.ended)) : Json()},
          {"percent", run.share ? Json(std::lround(100 * std::min(1.0, *run.share))) : Json()},
          {"progress", step_text(run)},
          {"fault", faults_text(run)},
          {"loss", thinned(run.loss)},
          {"metric_name", run.metric_name},
          {"metric", thinned(run.metric)}};
}

// Cells of which some run has ended.
TextTable finished_cells(const ExperimentReport& report) {
  TextTable table{{{"cell"}, {"n", true}, {report.headline, true}, {"images/s", true}}, {}};
  for (const ReportCell& cell : report.cells) {
    const int ok = cell.scores.count(Status::ok), missing = cell.scores.count(std::nullopt);
    const auto asked = static_cast<int>(cell.scores.outcomes.size());
    if (missing == asked) continue;
    const auto values = cell.scores.values.find("saved");
    std::vector<std::string> speeds;
    for (const ReportRow& row : cell.rows)
      if (const auto speed = row.claimed_images_per_s()) speeds.push_back(significant(*speed, 4));
    table.rows.push_back(
        {joined(cell.cell), std::to_string(ok) + (ok < asked ? "/" + std::to_string(asked) : ""),
         plus_minus(values == cell.scores.values.end() ? Interval{} : over_seeds(values->second)),
         joined(speeds)});
  }
  return table;
}

Json experiment_json(const LiveExperiment& experiment) {
  const ExperimentStatus& status = experiment.status;
  const auto& report = experiment.report;
  std::vector<std::string> failed = failure_lines(status.failures);
  failed.insert(failed.end(), status.problems.begin(), status.problems.end());
  return {{"name", status.experiment},
          {"question", report ? report->question : ""},
          {"asked", status.asked},
          {"finished", status.finished},
          {"ok", status.ok()},
          {"failed", status.failed},
          {"failed_runs", failed},
          {"runs", mapped(experiment.runs, run_json)},
          {"strategies", report ? Json(mapped(report->cells, &ReportCell::strategy)) : Json::array()},
          {"finished_cells", report ? table_json(finished_cells(*report)) : Json()}};
}

}  // namespace

std::optional<double> LiveRun::seconds_left() const {
  if (!share || *share <= 0) return std::nullopt;
  return std::max(0.0, elapsed_s / *share - elapsed_s);
}

std::vector<LiveRun> live_runs(const fs::path& results, const std::string& experiment) {
  std::vector<LiveRun> runs;
  for (const fs::path& folder : begun_folders(results, experiment)) {
    try {
      // The checkpoints of a run that was being made again when it was interrupted: nobody works on them.
      const bool left = placement_of(folder) != folder.filename() && claims_of(folder).empty();
      if (!left && !fs::exists(folder / kRecordFile)) runs.push_back(run_in(experiment, folder));
    } catch (const fs::filesystem_error&) {  // the run has begun anew, or ended, in the meantime
    }
  }
  return runs;
}

bool LiveExperiment::ended() const {
  return std::ranges::all_of(runs, [](const LiveRun& run) { return run.ended.has_value(); }) &&
         status.claimed.empty() && (!has_spec || status.missing() <= 0);
}

LiveExperiment look_at(const std::string& name, const fs::path& results, const Experiment* experiment,
                       EndedRuns* known) {
  LiveExperiment seen;
  seen.runs = live_runs(results, name);
  seen.has_spec = experiment != nullptr;
  seen.status = seen.has_spec ? status_of(*experiment, results) : status_of(name, results);
  if (known == nullptr) return seen;
  const std::vector<Record> records = list_records(results, name);
  std::ranges::move(ended_runs(name, records, *known), std::back_inserter(seen.runs));
  std::vector<std::string> damaged = mapped(seen.runs, &LiveRun::damaged);
  if (seen.has_spec) {
    std::map<std::string, std::string> groups;  // by run id
    const std::vector<CellColumn> columns = columns_of(*experiment);
    for (const RunSpec& run : experiment->runs) groups[run.id] = name_of(run, columns).group;
    for (LiveRun& run : seen.runs) run.group = groups[run.run_id];
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

std::string sparkline(const std::vector<double>& values, size_t width) {
  constexpr std::array<const char*, 8> kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  const size_t count = std::min(values.size(), width);
  std::vector<double> means(count, 0.0);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    for (size_t k = begin; k < end; ++k) means[i] += values[k] / static_cast<double>(end - begin);
  }
  if (means.empty()) return "";
  const auto [low, high] = std::ranges::minmax(means);
  std::string line;
  for (const double value : means) {
    const double height = high > low ? (value - low) / (high - low) : 0;
    line += kBlocks[static_cast<size_t>(std::lround(height * 7))];
  }
  return line;
}

std::string live_line(const LiveRun& run) {
  std::string text = run.run_id + " " + run.placement + "  " + step_text(run);
  if (!run.loss.empty()) text += "  loss " + last_text(run.loss);
  if (!run.metric.empty()) text += "  " + run.metric_name + " " + last_text(run.metric);
  const std::string faults = faults_text(run);
  return text + (faults.empty() ? "" : "  ! " + faults);
}

std::string live_text(const std::vector<LiveExperiment>& experiments, size_t width) {
  std::vector<std::string> lines;
  for (const LiveExperiment& experiment : experiments) {
    for (const LiveRun& run : experiment.runs) {
      lines.push_back(run.experiment + "  " + run.run_id + "  " + run.placement + "  " + step_text(run));
      lines.push_back(curve_line("loss", run.loss, width));
      lines.push_back(curve_line(run.metric_name, run.metric, width));
      const std::string faults = faults_text(run);
      lines.push_back(faults.empty() ? "" : "  ! " + faults);
    }
  }
  std::erase(lines, "");
  if (lines.empty()) lines.push_back("no run is under way");
  std::string text;
  for (const std::string& line : lines) text += clipped(printable(line), width) + "\n";
  text += "\n";
  std::istringstream status(status_text(mapped(experiments, &LiveExperiment::status)));
  for (std::string line; std::getline(status, line);) text += clipped(line, width) + "\n";
  return text;
}

std::string live_html(const std::vector<LiveExperiment>& experiments, double refresh_s) {
  return page_with({{"written", now_utc()},
                    {"refresh_s", refresh_s},
                    {"experiments", mapped(experiments, experiment_json)}},
                   kLivePage);
}

}  // namespace bnlab
