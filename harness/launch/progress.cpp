#include "harness/launch/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <numeric>

#include "harness/support/terminal.hpp"

namespace bnlab {
namespace {

constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::seconds kPlainPeriod{10};
constexpr const char* kRed = "\033[31m";
constexpr const char* kGreen = "\033[32m";

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return no_colour == nullptr || *no_colour == '\0';
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

double work_of(const RunSpec& run) {
  const auto batch = std::accumulate(run.samples_per_tower.begin(), run.samples_per_tower.end(), int64_t{0});
  return run.epochs ? *run.epochs : static_cast<double>(run.steps) * static_cast<double>(batch);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

std::string headline_text(const Json& result) {
  if (!result.is_object() || !result.contains("headline") || !result.contains("final")) return "";
  const std::string metric = result.at("headline").get<std::string>();
  for (const auto& [population, metrics] : result.at("final").items()) {
    const Json& value = value_at(metrics, metric);
    return metric + " " + (value.is_number() ? formatted("%.4f", value.get<double>()) : "undefined");
  }
  return "";
}

void MetricsTail::read_on() {
  std::ifstream in(file_, std::ios::binary);
  in.seekg(0, std::ios::end);
  if (in.tellg() < offset_)  // a run that goes on from a checkpoint has cut off what lay behind it
    offset_ = 0;
  in.seekg(offset_);
  for (std::string line; std::getline(in, line) && !in.eof();) {  // at eof the line is still being written
    offset_ += static_cast<int64_t>(line.size()) + 1;
    const Json entry = Json::parse(line, nullptr, false);
    if (!entry.is_object() || entry.value("kind", "") != "train") continue;
    step_ = entry.value("step", step_);
    epoch_ = entry.value("epoch", epoch_);
    const auto loss = entry.find("loss");
    loss_ = loss != entry.end() && loss->is_number() ? std::optional(loss->get<double>()) : std::nullopt;
  }
}

Progress::Progress(int runs, double work, int jobs)
    : runs_(runs),
      jobs_(jobs),
      terminal_(draws_on_terminal(STDERR_FILENO)),
      colour_(terminal_ && wants_colour()),
      work_left_(work),
      next_draw_(Clock::now()) {}

Progress::~Progress() {
  clear();
}

void Progress::say(const std::string& line) {
  clear();
  std::cerr << line << std::endl;
}

void Progress::started(const RunSpec& run, const std::string& metrics_file) {
  active_.push_back({run, MetricsTail(metrics_file), Clock::now()});
  if (!terminal_) {
    say("started  " + run.id + counts());
    next_draw_ = Clock::now() + kPlainPeriod;
  }
}

void Progress::dropped(const RunSpec& run, const std::string& why) {
  active_.remove_if([&](const Active& active) { return active.run.id == run.id; });
  --runs_;
  work_left_ -= work_of(run);
  say("skipped  " + run.id + "  " + why);
}

void Progress::finished(const RunSpec& run, const Outcome& outcome, double wall_time_s, const Json& result) {
  active_.remove_if([&](const Active& active) { return active.run.id == run.id; });
  const bool ok = outcome.status == Status::ok;
  const bool failed = !ok && outcome.status != Status::interrupted;
  done_ += ok || failed ? 1 : 0;
  failed_ += failed ? 1 : 0;
  work_left_ -= work_of(run);
  if (ok) {  // what failed may have ended early, and says nothing of the time that others need
    measured_work_ += work_of(run);
    measured_seconds_ += wall_time_s;
  }
  std::string status = name(outcome.status);
  status.resize(std::max<size_t>(status.size(), 8), ' ');
  const std::string metric = headline_text(result);
  const double left = seconds_left();
  const Json& reason = value_at(result, "stopped_early.reason");
  std::string early = reason.is_string() ? "  stopped early, " + reason.get<std::string>() : "";
  if (const Json& resumed = value_at(result, "resumed_at_steps"); resumed.is_array() && !resumed.empty())
    early += "  went on from step " + resumed.back().dump();
  paint(ok ? kGreen : kRed, status);
  say(" " + run.id + (metric.empty() ? "" : "  " + metric) + early + "  " + formatted("%.1f s", wall_time_s) +
      counts() + (std::isfinite(left) && done_ < runs_ ? ", " + duration_text(left) + " left" : "") +
      (outcome.message.empty() ? "" : "\n         " + outcome.message));
}

void Progress::update() {
  if (Clock::now() < next_draw_) return;
  next_draw_ = Clock::now() + (terminal_ ? Clock::duration(kTerminalPeriod) : Clock::duration(kPlainPeriod));
  for (Active& active : active_) active.tail.read_on();
  draw();
}

std::string Progress::counts() const {
  return "  [" + std::to_string(done_) + "/" + std::to_string(runs_) +
         (failed_ > 0 ? ", " + std::to_string(failed_) + " failed" : "") + "]";
}

std::string Progress::latest(const Active& active) const {
  std::string text = active.run.id;
  if (active.tail.step() > 0) {
    text += " step " + std::to_string(active.tail.step());
    text += active.run.steps > 0 ? "/" + std::to_string(active.run.steps) : "";
    text += active.tail.loss() ? " loss " + formatted("%.3g", *active.tail.loss()) : "";
  }
  return text;
}

double Progress::share_done(const Active& active) {
  const RunSpec& run = active.run;
  return run.epochs ? active.tail.epoch() / *run.epochs
                    : static_cast<double>(active.tail.step()) / static_cast<double>(run.steps);
}

double Progress::seconds_left() const {
  double work = measured_work_;
  double seconds = measured_seconds_;
  double under_way = 0;
  for (const Active& active : active_) {
    const double share = share_done(active);
    under_way += share * work_of(active.run);
    if (measured_work_ == 0) {  // nothing is finished yet: the runs under way are all there is to go by
      work += share * work_of(active.run);
      seconds += std::chrono::duration<double>(Clock::now() - active.start).count();
    }
  }
  if (work <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::max(0.0, work_left_ - under_way) * seconds / work / jobs_;
}

void Progress::draw() {
  if (active_.empty()) return;
  const double left = seconds_left();
  const std::string head = (std::isfinite(left) ? duration_text(left) + " left" : "") + counts();
  if (!terminal_) {
    for (const Active& active : active_) say("running  " + latest(active) + "  " + head);
    return;
  }
  std::string line = head.substr(head.find_first_not_of(' ')) + "  " + latest(active_.front());
  if (active_.size() > 1) line += "  and " + std::to_string(active_.size() - 1) + " more";
  std::cerr << Control{"\r\033[K"} << line.substr(0, terminal_columns(STDERR_FILENO, 80) - 1) << std::flush;
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) {
    std::cerr << Control{"\r\033[K"} << std::flush;
    drawn_ = false;
  }
}

void Progress::paint(const char* colour, const std::string& text) {
  clear();
  std::cerr << Control{colour_ ? colour : ""} << text << Control{colour_ ? "\033[0m" : ""};
}

ExpectedTime::ExpectedTime(const std::vector<Record>& records) {
  for (const Record& record : records) {
    for (const Like& like : likes(record.strategy_label(), record.placement())) {
      Sum& sum = sums_[like];
      sum.seconds += record.wall_time_s();
      sum.images += record.number("result.images").value_or(0);
      sum.epochs += record.number("result.epochs").value_or(0);
    }
  }
}

std::optional<double> ExpectedTime::seconds(const PlacedRun& run) const {
  for (const Like& like : likes(label(run.spec.strategy), run.placement.name())) {
    const auto found = sums_.find(like);
    if (found == sums_.end()) continue;
    const Sum& sum = found->second;
    const double work = run.spec.epochs ? sum.epochs : sum.images;  // what work_of counts
    if (work > 0) return sum.seconds / work * work_of(run.spec);
  }
  return std::nullopt;
}

std::array<ExpectedTime::Like, 3> ExpectedTime::likes(const std::string& strategy,
                                                      const std::string& placement) {
  return {Like{strategy, placement}, Like{"", placement}, Like{"", ""}};
}

}  // namespace bnlab
