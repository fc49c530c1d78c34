// bnlab trace: a few training steps of one run on all ranks, as a file for Perfetto, and the longest waits.
// With --device what that device spends them on instead: kernels of a GPU, operators of a CPU.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <string_view>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/start_program.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/profiled.hpp"
#include "harness/probe/traced.hpp"
#include "harness/store/record.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/transfer/chrome_trace.hpp"

namespace bnlab {
namespace {

constexpr size_t kWaitsShown = 5, kWorkShown = 25, kNameShown = 120;

struct TraceCommand {
  AskedSpec spec;
  more::Measured launch;
  int steps = 2;
  int after = 20;
  std::string out;

  void describe(Arguments& option) {
    spec.describe(option);
    option("--ranks N", launch.ranks, "Processes on this machine, a tower on each. Default: one")
        .from(1, kMostAtOnce);
    option(
        "--device DEVICE", launch.device,
        "Show what this device, cpu or cuda, spends steps of the first such run on, by LibTorch's profiler");
    option("--exchange HOW", launch.exchange,
           "How ranks exchange: by shared_memory (default on one host) or sockets");
    option("--only KEY=VALUE,...", launch.only, "The run to trace, such as strategy=sync");
    option("--steps N", steps, "Steps that are traced").from(1, 1000);
    option("--after N", after, "Steps before these, which are not traced").from(0, 1e6);
    option("--out FILE", out,
           "File for the trace, in Chrome's format. Default: trace.json, with --device none");
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

// The first run that is asked for, with all its towers.
RunSpec run_to_profile(const TraceCommand& asked, int ranks) {
  std::string results = asked.launch.results_dir;
  const Experiment experiment = asked.spec.load(results);
  RunSpec run = select_runs(experiment.runs, asked.launch.only, "").front();
  if (run.towers() % ranks != 0) {
    throw Error(Error::Kind::usage, "--ranks: expected a divisor of the " + std::to_string(run.towers()) +
                                        " towers of " + run.id + ", got " + std::to_string(ranks));
  }
  return run;
}

// Names of kernels without what all of them have.
std::string kernel_name(std::string name) {
  for (const std::string_view word : {"void ", "(anonymous namespace)::", "at::native::"})
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word))
      name.erase(at, word.size());
  return name.size() > kNameShown ? name.substr(0, kNameShown) + "..." : name;
}

// Of all ranks the one on which exchanges run alone for longest.
std::string text_of_work(const std::vector<Json>& ranks, Device device, const std::string& title) {
  const Json& worst = *std::ranges::max_element(
      ranks, {}, [](const Json& rank) { return rank.at("nccl_alone_s").get<double>(); });
  const double step = worst.at("step_s"), nccl = worst.at("nccl_s"), alone = worst.at("nccl_alone_s");
  const auto percent = [step](double seconds) { return fixed(100 * seconds / step, 1) + " %"; };
  double count = 0;
  TextTable table{{{"share", true},
                   {"ms a step", true},
                   {"a step", true},
                   {device == Device::cuda ? "kernel" : "operator, without those inside"}},
                  {}};
  for (const Json& row : worst.at("work")) {
    const double own = row.at("own_s"), times = row.at("count");
    count += times;
    if (table.rows.size() < kWorkShown)
      table.rows.push_back(
          {percent(own), fixed(own * 1e3, 4), significant(times, 4), kernel_name(row.at("name"))});
  }
  std::string text = title + ": " + significant(step * 1e3, 4) + " ms a step under the profiler, " +
                     significant(count, 5) + (device == Device::cuda ? " kernels" : " operators") +
                     ", nothing runs in " + percent(worst.at("idle_s"));
  if (nccl > 0) {
    text += "; NCCL " + fixed(nccl * 1e3, 3) + " ms, next to others " + fixed(100 * (1 - alone / nccl), 0) +
            " % of that, alone " + percent(alone) + " of the step";
  }
  return text + "\n" + table.text();
}

int profiled(const TraceCommand& asked, const Rendezvous& place) {
  const RunSpec run = run_to_profile(asked, place.size);
  const Device device = *asked.launch.device;
  const std::vector<Json> ranks =
      profiled_steps(run, place, device, asked.launch.data_dir, asked.after, asked.steps, asked.out);
  if (place.rank == 0) std::cout << text_of_work(ranks, device, run.id + " on " + name_of(device));
  return exit_code::kOk;
}

int traced(const TraceCommand& asked, const std::optional<EnvironmentWorld>& world) {
  Rendezvous place = world ? world->rendezvous : Rendezvous{};
  const bool one_host = !world || world->one_host, on_gpus = asked.launch.device == Device::cuda;
  if (world && on_gpus)
    place.local_rank = agree_on_gpus(*world, Device::cuda).of_rank.at(static_cast<size_t>(place.rank));
  place.exchange =
      asked.launch.exchange.value_or(one_host && !on_gpus ? Exchange::shared_memory : Exchange::sockets);
  const int threads =
      !world ? usable_cores()
             : threads_of_rank(*world, process_environment(), usable_cores(), usable_cores(getppid()));
  prepare_to_measure(asked.launch.threads > 0 ? asked.launch.threads : threads);
  if (asked.launch.device) return profiled(asked, place);
  const RunSpec run = run_of(asked, place.size);
  const ActivityOfRanks ranks =
      traced_steps(run, place, one_host, asked.launch.data_dir, asked.after, asked.steps);
  if (place.rank == 0) {
    const std::string file = asked.out.empty() ? "trace.json" : asked.out;
    write_json(file, chrome_trace(ranks));
    std::cout << text_of(ranks, file);
  }
  return exit_code::kOk;
}

int trace(const TraceCommand& asked) {
  const auto world = joined_world(asked.launch);
  if (world || asked.launch.ranks <= 1) return traced(asked, world);
  // What is wrong with the spec is told once.
  asked.launch.device ? run_to_profile(asked, asked.launch.ranks) : run_of(asked, asked.launch.ranks);
  return asked.launch.start_ranks(asked.launch.ranks);
}

const Command trace_command(more::named("trace"),
                            "  bnlab trace tradeoff --only strategy=sync --ranks 2   for ui.perfetto.dev\n"
                            "  bnlab trace tradeoff --only strategy=sync --ranks 2 --after 100 --steps 3\n"
                            "  bnlab trace tradeoff_gpu --device cuda --steps 5      its kernels by time\n"
                            "  mpirun -n 4 bnlab trace tradeoff --only strategy=shuffle",
                            trace);

}  // namespace
}  // namespace bnlab
