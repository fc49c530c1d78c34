// bnlab watch: what is running, as it goes on.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/report/live_runs.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {
namespace {

struct WatchRequest {
  std::string folder = "results";
  double every_s = 2;
  bool once = false;
};

// One experiment, or all of a results folder.
std::vector<ExperimentPath> watched(const std::string& folder) {
  std::vector<ExperimentPath> all = mapped(list_experiments(folder), [&](const std::string& name) {
    return ExperimentPath{folder, name};
  });
  const ExperimentPath single = experiment_path(folder);
  if (all.empty() && !begun_folders(single.results, single.name).empty()) all.push_back(single);
  return all;
}

bool draws_on_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

size_t columns_of_terminal() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

struct Sight {
  std::vector<LiveRun> runs;
  std::vector<ExperimentStatus> experiments;
};

Sight look(const std::string& folder) {
  Sight sight;
  for (const ExperimentPath& path : watched(folder)) {
    for (LiveRun& run : live_runs(path.results, path.name)) sight.runs.push_back(std::move(run));
    sight.experiments.push_back(status_of(path.name, path.results));
  }
  return sight;
}

int watch(const WatchRequest& request) {
  if (watched(request.folder).empty()) {
    throw Error(Error::Kind::usage,
                request.folder + ": no runs there; expected RESULTS or RESULTS/EXPERIMENT");
  }
  const bool terminal = draws_on_terminal();
  while (true) {
    const Sight sight = look(request.folder);
    if (terminal || request.once) {
      const char* clear = request.once ? "" : "\033[H\033[2J";
      std::cout << clear << live_page(sight.runs, sight.experiments, columns_of_terminal()) << std::flush;
    } else {
      for (const LiveRun& run : sight.runs) std::cout << live_line(run) << std::endl;
    }
    if (request.once) return exit_code::kOk;
    std::this_thread::sleep_for(std::chrono::duration<double>(terminal ? request.every_s : 10.0));
  }
}

}  // namespace

void add_watch(Program& program) {
  auto [command, request] = add_command(program, "watch", "What is running, with its curves, until Ctrl-C",
                                        "  bnlab watch\n"
                                        "  bnlab watch results/quickstart --once",
                                        watch);
  command.add_option("FOLDER", request.folder, "RESULTS, or RESULTS/EXPERIMENT")->capture_default_str();
  command.add_option("--every", request.every_s, "Seconds between two looks on a terminal")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_flag("--once", request.once, "Print the page once and exit");
}

}  // namespace bnlab
