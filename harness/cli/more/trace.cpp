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
#include "harness/cores.hpp"
#include "harness/error.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/start_program.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/traced.hpp"
#include "harness/shell.hpp"
#include "harness/store/record.hpp"
#include "harness/text_table.hpp"
#include "harness/transfer/chrome_trace.hpp"

namespace bnlab {
namespace {

constexpr size_t kWaitsShown = 5;

struct TraceCommand {
  std::string spec;
  std::vector<std::string> overrides;
  LaunchRequest launch;
  int steps = 2;
  int after = 20;
  std::string out = "trace.json";
};

RunSpec run_of(const TraceCommand& asked, int ranks) {
  std::string results = asked.launch.results_dir;
  const Experiment experiment = load_asked(asked.spec, results, asked.overrides);
  const std::vector<RunSpec> runs =
      runs_to_measure(select_runs(experiment.runs, asked.launch.only, ""), ranks);
  if (runs.size() != 1) {
    std::set<std::string> strategies;
    for (const RunSpec& run : runs) strategies.insert(label(run.strategy));
    std::vector<std::string> words{asked.spec};
    words.insert(words.end(), asked.overrides.begin(), asked.overrides.end());
    if (asked.launch.ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(asked.launch.ranks)});
    words.insert(words.end(),
                 {"--only", strategies.size() == runs.size() ? "strategy=" + label(runs.back().strategy)
                                                             : "run=" + runs.back().id});
    throw Error(Error::Kind::usage, asked.spec + ": expected one run to trace, got " +
                                        std::to_string(runs.size()) +
                                        "; choose one, such as: " + shell_command("bnlab trace", words));
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

int start_ranks(const TraceCommand& asked) {
  ProgramRequest program{.ranks = asked.launch.ranks,
                         .threads = asked.launch.threads,
                         .words = {asked.launch.program, "trace", asked.spec}};
  const auto add = [&](const std::string& option, const std::string& value) {
    program.words.insert(program.words.end(), {option, value});
  };
  program.words.insert(program.words.end(), asked.overrides.begin(), asked.overrides.end());
  if (asked.launch.exchange) add("--exchange", name_of(*asked.launch.exchange));
  for (const std::string& only : asked.launch.only) add("--only", only);
  if (!asked.launch.data_dir.empty()) add("--data", asked.launch.data_dir);
  add("--steps", std::to_string(asked.steps));
  add("--after", std::to_string(asked.after));
  add("--out", std::filesystem::absolute(asked.out).string());
  return start_program(program);
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
  return start_ranks(asked);
}

}  // namespace

void add_trace(Program& program) {
  auto [command, request] =
      add_command(program, more::kTrace,
                  "  bnlab trace tradeoff --only strategy=sync --ranks 2   for ui.perfetto.dev\n"
                  "  bnlab trace tradeoff --only strategy=sync --ranks 2 --after 100 --steps 3\n"
                  "  mpirun -n 4 bnlab trace tradeoff --only strategy=shuffle",
                  trace);
  add_spec(command, request.spec);
  add_overrides(command, request.overrides);
  add_ranks_option(command, request.launch.ranks, "Processes on this machine, a tower on each. Default: one");
  command
      .add_option_function<std::string>(
          "--exchange",
          [&launch = request.launch](const std::string& name) {
            launch.exchange = choice_of<Exchange>(name);
          },
          "How ranks exchange: by shared_memory (default on one host) or sockets")
      ->type_name("HOW")
      ->check(one_of(split_names(names(Exchange{}))));
  command
      .add_option("--threads", request.launch.threads,
                  "Threads of each rank. Default: its share of the cores")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.add_option("--only", request.launch.only, "The run to trace, such as strategy=sync")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  command.add_option("--steps", request.steps, "Steps that are traced")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--after", request.after, "Steps before these, which are not traced")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--out", request.out, "File for the trace, in Chrome's format")
      ->type_name("FILE")
      ->capture_default_str();
  add_data_option(command, request.launch.data_dir);
  request.launch.program = std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace bnlab
