// bnlab watch: what is running, as it goes on.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/notify.hpp"
#include "harness/report/live.hpp"
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
    return {.name = name, .results = results, .damaged = error.what()};
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

LiveExperiment look_at(const Watched& one, EndedRuns* known) {
  LiveExperiment seen =
      bnlab::look_at(one.name, one.results, one.experiment ? &*one.experiment : nullptr, known);
  if (!one.damaged.empty()) seen.status.problems.push_back(one.damaged);
  return seen;
}

// "no run is under way; waiting for those that are missing: small 4".
std::string waiting_text(const std::vector<LiveExperiment>& all) {
  std::vector<std::string> missing;
  for (const LiveExperiment& one : all) {
    const int count = one.has_spec ? one.status.missing() : 0;
    if (count > 0) missing.push_back(one.status.experiment + " " + std::to_string(count));
  }
  return "no run is under way" +
         (missing.empty() ? "" : "; waiting for those that are missing: " + joined(missing)) +
         " (Ctrl-C ends)";
}

// A line per run. `is_waiting`: whether it has said that nothing is under way.
void print_lines(const std::vector<LiveExperiment>& all, bool& is_waiting) {
  const bool was_waiting = std::exchange(is_waiting, true);
  for (const LiveExperiment& one : all) {
    for (const LiveRun& run : one.runs) std::cout << live_line(run) << std::endl;
    is_waiting = is_waiting && one.runs.empty();
  }
  if (is_waiting && !was_waiting) std::cout << waiting_text(all) << std::endl;
}

bool is_damaged(const LiveExperiment& one) {
  const auto damaged = [](const LiveRun& run) { return !run.damaged.empty(); };
  return !one.status.problems.empty() || std::ranges::any_of(one.runs, damaged);
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

int watch(const WatchRequest& request) {
  if (watched(request).empty()) {
    throw Error(Error::Kind::usage, (request.spec.empty() ? request.results : request.spec) +
                                        ": no runs there; expected a spec, RESULTS or RESULTS/EXPERIMENT");
  }
  const bool terminal = draws_on_terminal(STDOUT_FILENO);
  const bool until_the_end = !request.html.empty() || !request.notify.empty() || !terminal;
  const double every = request.every_s.value_or(!request.html.empty() ? kPageSeconds
                                                : terminal            ? kTerminalSeconds
                                                                      : kLinesSeconds);
  constexpr size_t kNoEnd = std::numeric_limits<size_t>::max();
  const auto columns = [] {
    return terminal_columns(STDOUT_FILENO, isatty(STDOUT_FILENO) == 0 ? kNoEnd : 100);
  };
  EndedRuns known;
  Failures failures;
  bool is_waiting = false;
  while (true) {
    const std::vector<Watched> all = watched(request);
    const auto seen = mapped(
        all, [&](const Watched& one) { return look_at(one, request.html.empty() ? nullptr : &known); });
    const bool ended = until_the_end && std::ranges::all_of(seen, &LiveExperiment::ended);
    const bool is_last = request.once || ended;
    if (!request.html.empty()) {
      write_atomically(request.html, live_html(seen, ended ? 0 : every));
    } else if (terminal || is_last) {
      std::cout << Control{terminal && !request.once ? "\033[H\033[2J" : ""} << live_text(seen, columns())
                << std::flush;
    } else {
      print_lines(seen, is_waiting);
    }
    if (!request.notify.empty()) {
      for (const Watched& one : all) failures.tell(request.notify, one);
      failures.looked();
      if (ended && !request.once)
        for (const LiveExperiment& one : seen)
          notify(request.notify, ended_notice(one.status.experiment, one.status.ok(), one.status.failed));
    }
    if (is_last) {
      if (!request.html.empty())
        for (const LiveExperiment& one : seen)
          for (const std::string& problem : one.status.problems) std::cerr << "damaged: " << problem << "\n";
      return std::ranges::any_of(seen, is_damaged) ? exit_code::kFailed : exit_code::kOk;
    }
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
