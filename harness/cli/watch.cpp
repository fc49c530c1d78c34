// bnlab watch: what is running, as it goes on.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/notify.hpp"
#include "harness/report/live_html.hpp"
#include "harness/report/live_runs.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/terminal.hpp"

namespace bnlab {
namespace {

constexpr double kTerminalSeconds = 2, kPageSeconds = 5, kLinesSeconds = 10;

struct WatchRequest {
  std::string spec;  // "" for all results
  std::string results = "results";
  std::optional<double> every_s;
  std::string html, notify;
  bool once = false;

  void describe(Arguments& option) {
    option("[SPEC]", spec,
           "Spec file, the name of one in experiments/, an experiment's folder of results, or a folder of "
           "results. Default: all results");
    option("--html FILE", html,
           "Write a page instead, which refreshes itself in a browser: curves of all runs, finished cells, "
           "failures. The command ends when the matrix has");
    describe_notify(option, notify);
    option("--every SECONDS", every_s,
           "Seconds between two looks. Default: 2 on a terminal, 5 for a page, else 10")
        .from(0.1, 3600);
    option("--once", once, "Look once and exit");
    describe_results(option, results);
  }
};

// What is watched: one experiment, whose spec is known or not, or all of a results folder.
struct Watched {
  std::string name, results;
  std::optional<Experiment> experiment = {};
  std::string damaged = {};  // what is wrong with the spec that is kept there
};

// With the spec that the folder keeps, if it keeps one.
Watched kept(const std::string& name, const std::string& results) {
  const std::filesystem::path folder = experiment_folder(results, name);
  std::string around = results;
  if (!std::filesystem::exists(folder / kSpecFile)) return {name, results};
  try {
    return {name, results, load_if_any(folder.string(), around)};
  } catch (const Error& error) {
    return {name, results, std::nullopt, error.what()};
  }
}

std::vector<Watched> watched(const WatchRequest& request) {
  std::string results = request.results;
  if (!request.spec.empty()) {
    if (auto experiment = load_if_any(request.spec, results)) {
      const std::string name = experiment->name;
      return {{name, results, std::move(experiment)}};
    }
  }
  const std::string folder = request.spec.empty() ? results : request.spec;
  std::vector<Watched> all =
      mapped(list_experiments(folder), [&](const std::string& name) { return kept(name, folder); });
  const ExperimentPath single = experiment_path(folder);
  if (all.empty() && !begun_folders(single.results, single.name).empty())
    all.push_back({single.name, single.results.string()});
  return all;
}

bool draws_on_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

// Of a file or a pipe: no end.
size_t columns_of_output() {
  if (isatty(STDOUT_FILENO) == 0) return std::numeric_limits<size_t>::max();
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

ExperimentStatus status_of(const Watched& one) {
  ExperimentStatus status = one.experiment ? bnlab::status_of(*one.experiment, one.results)
                                           : bnlab::status_of(one.name, one.results);
  if (!one.damaged.empty()) status.problems.push_back(one.damaged);
  return status;
}

// "no run is under way; waiting for those that are missing: small 4".
std::string waiting_text(const std::vector<Watched>& all) {
  std::vector<std::string> missing;
  for (const Watched& one : all) {
    const int count = one.experiment ? status_of(one).missing() : 0;
    if (count > 0) missing.push_back(one.name + " " + std::to_string(count));
  }
  return "no run is under way" +
         (missing.empty() ? "" : "; waiting for those that are missing: " + joined(missing)) +
         " (Ctrl-C ends)";
}

// Whether anything that it showed is damaged. `is_waiting`: whether it has said that nothing is under way.
bool show(const std::vector<Watched>& all, bool terminal, bool once, bool& is_waiting) {
  std::vector<LiveRun> runs;
  for (const Watched& one : all)
    for (LiveRun& run : live_runs(one.results, one.name)) runs.push_back(std::move(run));
  if (!terminal && !once) {
    for (const LiveRun& run : runs) std::cout << live_line(run) << std::endl;
    if (runs.empty() && !std::exchange(is_waiting, true)) std::cout << waiting_text(all) << std::endl;
    is_waiting = is_waiting && runs.empty();
    return false;
  }
  const auto experiments = mapped(all, [](const Watched& one) { return status_of(one); });
  std::cout << Control{terminal && !once ? "\033[H\033[2J" : ""}
            << live_page(runs, experiments, columns_of_output()) << std::flush;
  return std::ranges::any_of(runs, [](const LiveRun& run) { return !run.damaged.empty(); }) ||
         std::ranges::any_of(experiments, [](const auto& status) { return !status.problems.empty(); });
}

// What the page of a look holds that is damaged, a line each.
std::string damaged_text(const std::vector<LiveExperiment>& seen) {
  std::string text;
  for (const LiveExperiment& experiment : seen)
    for (const std::string& problem : experiment.status.problems) text += "damaged: " + problem + "\n";
  return text;
}

LiveExperiment look(LiveView& view, const Watched& one) {
  LiveExperiment seen = view.look(one.name, one.results, one.experiment ? &*one.experiment : nullptr);
  if (!one.damaged.empty()) seen.status.problems.push_back(one.damaged);
  return seen;
}

// Tells of runs that have failed since the first look.
class Failures {
 public:
  void tell(const std::string& command, const Watched& one) {
    for (const Record& record : list_records(one.results, one.name)) {
      const bool known = !told_.insert(record.file().string() + record.at("started_at").dump()).second;
      if (known || first_ || !record.failed()) continue;
      const Json& message = record.at("outcome.message");
      notify(command, failed_notice(one.name, record.run_id(), record.folder(), record.status(),
                                    message.is_string() ? message.get<std::string>() : ""));
    }
  }
  void looked() { first_ = false; }

 private:
  std::set<std::string> told_;
  bool first_ = true;
};

bool has_ended(const Watched& one) {
  const ExperimentStatus status = status_of(one);
  const bool is_complete = !one.experiment || status.missing() <= 0;
  return is_complete && status.claimed.empty() && live_runs(one.results, one.name).empty();
}

int watch(const WatchRequest& request) {
  if (watched(request).empty()) {
    throw Error(Error::Kind::usage, (request.spec.empty() ? request.results : request.spec) +
                                        ": no runs there; expected a spec, RESULTS or RESULTS/EXPERIMENT");
  }
  const bool terminal = draws_on_terminal();
  const bool until_the_end = !request.html.empty() || !request.notify.empty() || !terminal;
  const double every = request.every_s.value_or(!request.html.empty() ? kPageSeconds
                                                : terminal            ? kTerminalSeconds
                                                                      : kLinesSeconds);
  LiveView view;
  Failures failures;
  bool is_waiting = false;
  while (true) {
    const std::vector<Watched> all = watched(request);
    const bool ended = until_the_end && std::ranges::all_of(all, has_ended);
    const bool is_last = request.once || ended;
    bool is_damaged = false;
    if (!request.html.empty()) {
      const auto seen = mapped(all, [&](const Watched& one) { return look(view, one); });
      write_atomically(request.html, live_html(seen, ended ? 0 : every));
      const std::string damaged = damaged_text(seen);
      is_damaged = !damaged.empty();
      if (is_last) std::cerr << damaged;
    } else {
      is_damaged = show(all, terminal, request.once || (ended && !terminal), is_waiting);
    }
    if (!request.notify.empty()) {
      for (const Watched& one : all) failures.tell(request.notify, one);
      failures.looked();
      for (const Watched& one : ended && !request.once ? all : std::vector<Watched>{}) {
        const ExperimentStatus status = status_of(one);
        notify(request.notify, ended_notice(one.name, status.ok(), status.failed));
      }
    }
    if (is_last) return is_damaged ? exit_code::kFailed : exit_code::kOk;
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
  }
}

const Command watch_command(
    "watch", {Heading::experiments, 2},
    "Follow what is running, with its curves, until Ctrl-C, in a pipe to the end of the matrix",
    "  bnlab watch\n"
    "  bnlab watch quickstart\n"
    "  bnlab watch quickstart --html quickstart.html\n"
    "  bnlab watch quickstart --notify 'notify-send \"$BNLAB_MESSAGE\"'\n"
    "  bnlab watch --once",
    watch);

}  // namespace
}  // namespace bnlab
