// What a person sees of runs under way.
#include <algorithm>

#include "harness/printable.hpp"
#include "harness/report/live_runs.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

constexpr double kQuiet = 300;  // seconds without a word after which a run may be dead

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

std::string step_text(const LiveRun& run) {
  std::string text = "step " + std::to_string(run.step);
  if (run.steps) text += "/" + std::to_string(*run.steps);
  if (const auto left = run.seconds_left()) text += "  " + time_text(*left) + " left";
  return text;
}

std::string faults_text(const LiveRun& run) {
  std::string text = run.fault;
  if (run.quiet_s > kQuiet) {
    text += (text.empty() ? "" : "; ") + ("no word for " + time_text(run.quiet_s) + ": it may be dead");
  }
  return text;
}

// At most `width` columns of a line; UTF-8 continuation bytes take none.
std::string clipped(const std::string& line, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80 && columns++ == width) return line.substr(0, i);
  }
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

std::string live_line(const LiveRun& run) {
  std::string text = run.run_id + " " + run.placement + "  " + step_text(run);
  if (!run.loss.empty()) text += "  loss " + significant(run.loss.back(), 4);
  if (!run.metric_values.empty()) text += "  " + run.metric + " " + significant(run.metric_values.back(), 4);
  const std::string faults = faults_text(run);
  return printable(text + (faults.empty() ? "" : "  ! " + faults));
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
  for (const std::string& line : lines) {
    if (!line.empty()) page += clipped(printable(line), width) + "\n";
  }
  std::string status = "\n" + status_text(experiments);
  for (size_t begin = 0; begin < status.size();) {
    const size_t end = std::min(status.find('\n', begin), status.size());
    page += clipped(status.substr(begin, end - begin), width) + "\n";
    begin = end + 1;
  }
  return page;
}

}  // namespace bnlab
