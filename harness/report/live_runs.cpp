#include "harness/report/live_runs.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "harness/store/attempts.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"
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
    if (run.metric.empty()) run.metric = known;
    if (run.metric != known) continue;
    run.metric_values.push_back(value.get<double>());
    run.metric_steps.push_back(run.step);
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
  if (loss.is_number()) {
    run.loss.push_back(loss.get<double>());
    run.loss_steps.push_back(run.step);
  }
  run.fault = loss.is_number() ? "" : "the loss is not finite";
}

constexpr double kQuiet = 300;  // seconds without a word after which a run may be dead

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

// At most `width` columns of a line; UTF-8 continuation bytes take none.
std::string clipped(const std::string& line, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < line.size(); ++i)
    if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80 && columns++ == width) return line.substr(0, i);
  return line;
}

std::string curve_line(const std::string& title, const std::vector<double>& values, size_t width) {
  constexpr size_t kTitle = 18, kNumber = 10;
  if (values.empty()) return "";
  const size_t room = width > kTitle + kNumber + 8 ? std::min<size_t>(width - kTitle - kNumber, 60) : 8;
  std::string padded = "  " + title;
  padded.resize(std::max(padded.size(), kTitle), ' ');
  return padded + sparkline(values, room) + "  " + significant(values.back(), 4);
}

}  // namespace

std::optional<double> LiveRun::seconds_left() const {
  if (!share || *share <= 0) return std::nullopt;
  return std::max(0.0, elapsed_s / *share - elapsed_s);
}

LiveRun run_in(const std::string& experiment, const fs::path& folder) {
  LiveRun run;
  run.experiment = experiment;
  run.run_id = folder.parent_path().filename().string();
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
  if (const Json& strategy = value_at(job, "spec.strategy");
      strategy.is_object() && strategy.contains("name")) {
    run.strategy = label(strategy);
  }
  if (const Json& seed = value_at(job, "spec.seed"); seed.is_number_unsigned())
    run.seed = seed.get<uint64_t>();
  run.quiet_s = seconds_since_written(folder);
  return run;
}

std::string step_text(const LiveRun& run) {
  std::string text = "step " + std::to_string(run.step);
  if (run.steps) text += "/" + std::to_string(*run.steps);
  if (const auto left = run.seconds_left()) text += "  " + time_text(*left) + " left";
  return text;
}

std::string faults_text(const LiveRun& run) {
  std::string text = run.fault;
  if (run.quiet_s > kQuiet)
    text += (text.empty() ? "" : "; ") + ("no word for " + time_text(run.quiet_s) + ": it may be dead");
  if (!run.damaged.empty()) text += (text.empty() ? "" : "; ") + run.damaged;
  return text;
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
  if (!run.loss.empty()) text += "  loss " + significant(run.loss.back(), 4);
  if (!run.metric_values.empty()) text += "  " + run.metric + " " + significant(run.metric_values.back(), 4);
  const std::string faults = faults_text(run);
  return text + (faults.empty() ? "" : "  ! " + faults);
}

std::string live_page(const std::vector<LiveRun>& runs, const std::vector<ExperimentStatus>& experiments,
                      size_t width) {
  std::vector<std::string> lines;
  if (runs.empty()) lines.push_back("no run is under way");
  for (const LiveRun& run : runs) {
    lines.push_back(run.experiment + "  " + run.run_id + "  " + run.placement + "  " + step_text(run));
    lines.push_back(curve_line("loss", run.loss, width));
    lines.push_back(curve_line(run.metric, run.metric_values, width));
    const std::string faults = faults_text(run);
    lines.push_back(faults.empty() ? "" : "  ! " + faults);
  }
  std::string page;
  for (const std::string& line : lines)
    if (!line.empty()) page += clipped(printable(line), width) + "\n";
  std::string status = "\n" + status_text(experiments);
  for (size_t begin = 0; begin < status.size();) {
    const size_t end = std::min(status.find('\n', begin), status.size());
    page += clipped(status.substr(begin, end - begin), width) + "\n";
    begin = end + 1;
  }
  return page;
}

}  // namespace bnlab
