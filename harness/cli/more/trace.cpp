// bnlab trace: a few training steps of one run on all ranks, as a file for Perfetto, and the longest waits.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/start_program.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/traced.hpp"
#include "harness/store/record.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/transfer/chrome_trace.hpp"

namespace bnlab {
namespace {

constexpr size_t kWaitsShown = 5;

struct TraceCommand {
  AskedSpec spec;
  more::Measured launch;
  int steps = 2;
  int after = 20;
  std::string out = "trace.json";

  void describe(Arguments& option) {
    spec.describe(option);
    option("--ranks N", launch.ranks, "Processes on this machine, a tower on each. Default: one")
        .from(1, kMostAtOnce);
    option("--exchange HOW", launch.exchange,
           "How ranks exchange: by shared_memory (default on one host) or sockets");
    option("--only KEY=VALUE,...", launch.only, "The run to trace, such as strategy=sync");
    option("--steps N", steps, "Steps that are traced").from(1, 1000);
    option("--after N", after, "Steps before these, which are not traced").from(0, 1e6);
    option("--out FILE", out, "File for the trace, in Chrome's format");
    launch.describe(option);
  }
};

RunSpec run_of(const TraceCommand& asked, int ranks) {
  std::string results = asked.launch.results_dir;
  const Experiment experiment = asked.spec.load(results);
  const std::vector<RunSpec> runs =
      runs_to_measure(select_runs(experiment.runs, asked.launch.only, ""), ranks);
  if (runs.size() != 1) {
    std::set<std::string> strategies;
    for (const RunSpec& run : runs) strategies.insert(label(run.strategy));
    Words words = asked.launch.typed;
    words.insert(words.end(),
                 {"--only", strategies.size() == runs.size() ? "strategy=" + label(runs.back().strategy)
                                                             : "run=" + runs.back().id});
    throw Error(Error::Kind::usage, asked.spec.name + ": expected one run to trace, got " +
                                        std::to_string(runs.size()) +
                                        "; choose one, such as: " + shell_command("bnlab", words));
  }
  return runs.front();
}

std::string text_of(const ActivityOfRanks& ranks, const std::string& file) {
  const Json shares = shares_of(ranks);
  const double step = shares.at("step");
  const auto part = [&](const char* name) {
    const double seconds = shares.at(name);
    return std::string(name) + " " + significant(seconds * 1e3, 3) + " ms (" +
           fixed(100 * seconds / step, 0) + " %)";
  };
  std::string text = "a step takes " + significant(step * 1e3, 3) + " ms: " + part("data") + ", " +
                     part("forward") + ", " + part("backward") + ", " + part("optimizer") + "\nof these " +
                     part("exchange") + ", of these " + part("waiting") + " for a rank that comes later\n";
  const std::vector<Wait> waits = waits_of(ranks);
  if (!waits.empty()) text += "the longest waits:\n";
  for (size_t i = 0; i < std::min(kWaitsShown, waits.size()); ++i) {
    const Wait& wait = waits[i];
    text += "  rank " + std::to_string(wait.rank) + " waits " + significant(wait.seconds * 1e6, 3) +
            " us for rank " + std::to_string(wait.for_rank) + " in " + wait.collective + " at " + wait.where +
            "\n";
  }
  return text + file + ": open it at https://ui.perfetto.dev\n";
}

int traced(const TraceCommand& asked, const std::optional<EnvironmentWorld>& world) {
  Rendezvous place = world ? world->rendezvous : Rendezvous{};
  const RunSpec run = run_of(asked, place.size);
  const bool one_host = !world || world->one_host;
  place.exchange = asked.launch.exchange.value_or(one_host ? Exchange::shared_memory : Exchange::sockets);
  const int threads =
      !world ? usable_cores()
             : threads_of_rank(*world, process_environment(), usable_cores(), usable_cores(getppid()));
  prepare_to_measure(asked.launch.threads > 0 ? asked.launch.threads : threads);
  const ActivityOfRanks ranks =
      traced_steps(run, place, one_host, asked.launch.data_dir, asked.after, asked.steps);
  if (place.rank == 0) {
    write_json(asked.out, chrome_trace(ranks));
    std::cout << text_of(ranks, asked.out);
  }
  return exit_code::kOk;
}

int trace(const TraceCommand& asked) {
  const auto world = joined_world(asked.launch);
  if (world || asked.launch.ranks <= 1) return traced(asked, world);
  run_of(asked, asked.launch.ranks);  // what is wrong with the spec is told once
  return asked.launch.start_ranks(asked.launch.ranks);
}

const Command trace_command(more::named("trace"),
                            "  bnlab trace tradeoff --only strategy=sync --ranks 2   for ui.perfetto.dev\n"
                            "  bnlab trace tradeoff --only strategy=sync --ranks 2 --after 100 --steps 3\n"
                            "  mpirun -n 4 bnlab trace tradeoff --only strategy=shuffle",
                            trace);

}  // namespace
}  // namespace bnlab
