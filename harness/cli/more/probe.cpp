// bnlab probe: what exchanges, norm sites and, with a SPEC, training steps cost on this machine or in the
// world of a launcher. Data go to standard output, as a table or as JSON; `bnlab cost --probe FILE` reads
// what --out writes.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/communicator/gpus.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/start_program.hpp"
#include "harness/probe/probe.hpp"
#include "harness/store/record.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

struct ProbeCommand {
  AskedSpec spec;
  more::Measured launch;
  double seconds = 60;
  double largest_mb = 256;
  double delay_us = 0, bandwidth_mb = 0;
  std::string out;
  bool json = false;

  void describe(Arguments& option) {
    spec.describe(option, "[SPEC]", "Spec whose training steps are measured, too");
    option("--ranks N", launch.ranks, "Processes on this machine. Default: one per GPU, or per core up to 8")
        .from(1, kMostAtOnce);
    option("--device DEVICE", launch.device,
           "Where to compute: cpu or cuda. Default: cuda where there is a GPU");
    option(
        "--exchange HOW", launch.exchange,
        "How ranks exchange: on CPUs by shared_memory or sockets (default: both, where one host has all), on "
        "GPUs by NCCL or peers");
    option("--only KEY=VALUE,...", launch.only, "Take only runs that match, such as strategy=sync,per_tower");
    option("--seconds S", seconds, "Seconds that all of it may take, about").from(0.1, 86400);
    option("--largest-mb MB", largest_mb, "MiB of the largest exchange; less where time runs out")
        .from(0.001, 65536);
    option("--delay-us US", delay_us,
           "Make every exchange of CPU ranks take so many microseconds longer, as on a slower network")
        .from(0, 1e7);
    option("--bandwidth-mb MB/S", bandwidth_mb,
           "Make the bytes that a CPU rank hands over take as long as at this rate, in MB/s")
        .from(0.001, 1e6);
    option("--out FILE", out, "File for the JSON (its schema: results/probe.schema.json)");
    option("--json", json, "Print JSON");
    launch.describe(option);
  }
};

std::string microseconds(const Json& seconds, const char* quantile) {
  return seconds.is_null() ? "-" : significant(seconds.at(quantile).get<double>() * 1e6, 4);
}

std::string gigabytes(const Json& row, const char* key) {
  return significant(row.at(key).get<double>() * 1e-9, 3);
}

Json if_any(const Json& row, const char* key) {
  return row.contains(key) ? row.at(key) : Json();
}

// "GPU 0 reaches the memory of 1, 2; GPU 1 of none": rank 0's visible GPUs.
std::string text_of_peers(const Json& peers) {
  std::string text;
  for (size_t gpu = 0; gpu < peers.size(); ++gpu) {
    std::string reached;
    for (const Json& other : peers[gpu]) reached += (reached.empty() ? "" : ", ") + other.dump();
    text += (gpu == 0 ? "GPU " : "; GPU ") + std::to_string(gpu) +
            (gpu == 0 ? " reaches the memory of " : " of ") + (reached.empty() ? "none" : reached);
  }
  return text + "\n";
}

std::string text_of_fabric(const Json& probe) {
  const Json& fabric = probe.at("fabric");
  const Json& kernels = probe.at("kernels");
  std::string text = std::to_string(fabric.at("ranks").get<int>()) + " ranks on " +
                     std::to_string(fabric.at("nodes").get<int>()) + " machine(s), " +
                     fabric.at("device").get<std::string>() + ", " +
                     std::to_string(fabric.at("threads_per_rank").get<int>()) + " thread(s) each\n";
  if (fabric.contains("peers") && fabric.at("peers").size() > 1) text += text_of_peers(fabric.at("peers"));
  if (!kernels.is_null()) {
    text += "copy " + gigabytes(kernels, "copy_bytes_per_s") + " GB/s; norm with ReLU forward " +
            gigabytes(kernels, "norm_forward_bytes_per_s") + ", backward " +
            gigabytes(kernels, "norm_backward_bytes_per_s") + " GB/s of " +
            significant(kernels.at("tensor_bytes").get<double>() / (1 << 20), 3) + " MiB tensors; a launch " +
            significant(kernels.at("launch_s").get<double>() * 1e6, 3) + " us\n";
  }
  return text;
}

std::string text_of_collectives(const Json& probe) {
  TextTable table{{{"over"},
                   {"collective"},
                   {"size\n(B)", true},
                   {"p50\n(us)", true},
                   {"p95\n(us)", true},
                   {"p99\n(us)", true},
                   {"algbw\n(GB/s)", true},
                   {"busbw\n(GB/s)", true},
                   {"after work\n(us)", true},
                   {"in a graph\n(us)", true}},
                  {}};
  for (const Json& row : probe.at("collectives")) {
    const Json& time = row.at("time_s");
    table.rows.push_back(
        {row.at("exchange"), row.at("op"), std::to_string(row.at("size_bytes").get<int64_t>()),
         microseconds(time, "p50"), microseconds(time, "p95"), microseconds(time, "p99"),
         gigabytes(row, "algbw_bytes_per_s"), gigabytes(row, "busbw_bytes_per_s"),
         microseconds(if_any(row, "after_work_s"), "p50"), microseconds(if_any(row, "graph_time_s"), "p50")});
  }
  return table.text();
}

std::string text_of_routes(const Json& probe) {
  TextTable table{{{"over"},
                   {"strategy"},
                   {"channels", true},
                   {"site alone\n(us)", true},
                   {"with others\n(us)", true},
                   {"exchanges\n(us)", true}},
                  {}};
  const auto us = [](const Json& row, const char* key) {
    return significant(row.at(key).get<double>() * 1e6, 4);
  };
  for (const Json& row : probe.at("routes")) {
    table.rows.push_back({row.at("exchange"), row.at("strategy"),
                          std::to_string(row.at("channels").get<int64_t>()), us(row, "alone_s"),
                          us(row, "together_s"), us(row, "exchange_s")});
  }
  return table.text();
}

std::string text_of_steps(const Json& probe) {
  TextTable table{{{"over"},
                   {"model"},
                   {"strategy"},
                   {"own step\n(ms)", true},
                   {"with others\n(ms)", true},
                   {"exchanges", true},
                   {"peak MiB", true},
                   {"refused"}},
                  {}};
  const auto ms = [](const Json& seconds) { return significant(seconds.at("mean").get<double>() * 1e3, 4); };
  for (const Json& step : probe.at("steps")) {
    if (step.contains("refused")) {
      table.rows.push_back(
          {step.at("exchange"), step.at("model"), step.at("strategy"), "", "", "", "", step.at("refused")});
      continue;
    }
    double exchanges = 0;
    for (const Json& exchange : step.at("exchanges")) exchanges += exchange.at("count").get<double>();
    table.rows.push_back({step.at("exchange"), step.at("model"), step.at("strategy"), ms(step.at("own_s")),
                          ms(step.at("together_s")), significant(exchanges, 4),
                          fixed(step.at("peak_memory_bytes").get<double>() / (1 << 20), 0), ""});
  }
  return table.text();
}

std::string text_of(const Json& probe) {
  std::string text = text_of_fabric(probe);
  using Part = std::string (*)(const Json&);
  const std::vector<std::pair<const char*, Part>> parts{
      {"collectives", text_of_collectives}, {"routes", text_of_routes}, {"steps", text_of_steps}};
  for (const auto& [key, part] : parts)
    if (!probe.at(key).empty()) text += "\n" + part(probe);
  return text;
}

std::vector<RunSpec> runs_of(const ProbeCommand& asked, int ranks) {
  if (asked.spec.name.empty()) return {};
  std::string results = asked.launch.results_dir;
  const Experiment experiment = asked.spec.load(results);
  return runs_to_measure(select_runs(experiment.runs, asked.launch.only, ""), ranks);
}

int measure(const ProbeCommand& asked, const std::optional<EnvironmentWorld>& world, Device device) {
  ProbeRequest request;
  Rendezvous place;
  request.device = device;
  request.threads = usable_cores();
  if (world) {
    place = world->rendezvous;
    place.timeout = world->meeting_timeout;
    if (device == Device::cuda)
      place.local_rank = agree_on_gpus(*world, device).of_rank.at(static_cast<size_t>(place.rank));
    request.threads = threads_of_rank(*world, process_environment(), usable_cores(), usable_cores(getppid()));
    request.nodes = world->one_host ? 1 : std::max(1, place.size / world->local_size);
    request.launcher = world->launcher;
  }
  if (asked.launch.threads > 0) request.threads = asked.launch.threads;
  place.delay = {asked.delay_us * 1e-6, asked.bandwidth_mb * 1e6};
  const bool one_host = !world || world->one_host;
  if (device == Device::cuda)
    request.exchanges = {asked.launch.exchange.value_or(Exchange::sockets)};  // on GPUs all but peers is NCCL
  else if (asked.launch.exchange)
    request.exchanges = {*asked.launch.exchange};
  else if (place.size == 1 || !one_host)
    request.exchanges = {Exchange::sockets};
  else
    request.exchanges = {Exchange::shared_memory, Exchange::sockets};
  request.seconds = asked.seconds;
  request.largest_bytes = static_cast<int64_t>(asked.largest_mb * (1 << 20));
  request.runs = runs_of(asked, place.size);
  request.data_dir = asked.launch.data_dir;
  prepare_to_measure(request.threads);
  const Json probe = run_probe(request, place);
  if (place.rank == 0) {
    if (!asked.out.empty()) write_json(asked.out, probe);
    std::cout << (asked.json ? probe.dump(2) + "\n" : text_of(probe));
  }
  return exit_code::kOk;
}

int probe(const ProbeCommand& asked) {
  const int gpus = asked.launch.device == Device::cpu ? 0 : visible_gpus();
  const Device device = asked.launch.device.value_or(gpus > 0 ? Device::cuda : Device::cpu);
  if (device == Device::cuda && (asked.delay_us > 0 || asked.bandwidth_mb > 0)) {
    throw Error(Error::Kind::usage,
                "--delay-us and --bandwidth-mb slow exchanges of CPU ranks; give --device cpu");
  }
  const auto world = joined_world(asked.launch);
  if (world) return measure(asked, world, device);
  const int cores = std::min(usable_cores(), 8);
  const int ranks = asked.launch.ranks > 0   ? asked.launch.ranks
                    : device == Device::cuda ? std::max(gpus, 1)
                                             : cores;
  runs_of(asked, ranks);  // what is wrong with the spec is told once
  if (ranks == 1) return measure(asked, std::nullopt, device);
  return asked.launch.start_ranks(ranks, asked.launch.device ? Words() : Words{"--device", name_of(device)});
}

const Command probe_command(more::named("probe"),
                            "  bnlab probe --ranks 2 --out probe.json  about a minute\n"
                            "  bnlab probe sync_overhead --ranks 2     the spec's training steps, too\n"
                            "  bnlab probe --ranks 2 --seconds 10 --largest-mb 1\n"
                            "  torchrun --nproc-per-node 8 --no-python bnlab probe --out probe.json",
                            probe);

}  // namespace
}  // namespace bnlab
