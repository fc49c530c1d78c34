// bnlab cost: what a step of each strategy takes on so many ranks, predicted: its own work, given or
// measured, and its exchanges, counted here and timed by a probe or by a published cluster.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/more/more.hpp"
#include "harness/cli/network_screen.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/probe_file.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/selection.hpp"
#include "harness/prediction/clusters.hpp"
#include "harness/prediction/cost_table.hpp"
#include "harness/prediction/step.hpp"
#include "harness/prediction/validation.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/steps.hpp"
#include "harness/store/record.hpp"
#include "harness/support/cores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

// Where no step was measured: seconds from rank to rank at an exchange, and the share of a step.
constexpr double kExchangeDeviation = 2e-6, kShareOfBackward = 2.0 / 3;
struct CostCommand {
  AskedSpec spec;
  Words only;
  std::vector<int> ranks{2, 8, 64, 256, 1024};
  std::string probe, cluster, exchange, algorithm = "tree", link = "nvlink", path = "graph", data_dir;
  int per_node = 8;
  std::vector<std::string> validate;
  double seconds = 0, step_ms = 0, host_us = 0, peak_tflops = 0, bandwidth_gb = 0;
  bool own_step_is_given() const { return step_ms > 0 || peak_tflops > 0; }
  int threads = 1;
  bool clusters = false;
  bool json = false;

  void describe(Arguments& option) {
    spec.describe(option, "[SPEC]", "Spec file, the name of one in experiments/, or a folder of results");
    option("--ranks N,...", ranks, "Numbers of ranks, such as 2,8,64, with a tower on each")
        .from(1, kMostAtOnce)
        .by_commas()
        .greedy();
    option("--probe FILE", probe,
           "Predict by a file of bnlab probe --out: by its exchanges, and its steps if it has them");
    option("--cluster NAME", cluster, "Predict by a published cluster, which --clusters lists")
        .not_with({"--probe"});
    option("--algorithm NAME", algorithm, "Algorithm of NCCL: tree, ring or nvls")
        .one_of({"tree", "ring", "nvls"})
        .not_with({"--cluster", "--probe"});
    option("--per-node N", per_node, "GPUs of a node").from(1, 4096).not_with({"--cluster", "--probe"});
    option("--link NAME", link, "Link of a node's GPUs: nvlink or pcie")
        .one_of({"nvlink", "pcie"})
        .not_with({"--cluster", "--probe"});
    option("--path NAME", path, "How NCCL is launched: ordinary, graph (a CUDA graph) or symmetric (memory)")
        .one_of(kPaths)
        .not_with({"--cluster", "--probe"});
    option("--exchange HOW", exchange,
           "How ranks exchange: nccl, shared_memory or sockets. Default: all of the probe, else nccl")
        .one_of({"nccl", "shared_memory", "sockets"});
    option("--step-ms MS", step_ms,
           "Milliseconds of a rank's own step. Default: of the probe, else not known")
        .from(1e-3, 1e7);
    option("--peak-tflops T", peak_tflops,
           "Predict steps by a device's peak in TFLOP/s at the spec's precision: from its floor to twice it")
        .from(1e-3, 1e6)
        .only_with("--bandwidth-gb")
        .not_with({"--step-ms"});
    option("--bandwidth-gb GB/S", bandwidth_gb, "Bandwidth of a device's memory in GB/s")
        .from(1e-3, 1e6)
        .only_with("--peak-tflops");
    option("--host-us US", host_us,
           "Microseconds of the host per exchange that no CUDA graph launches (20 to 30 in PyTorch)")
        .from(0, 1e6);
    option("--only KEY=VALUE,...", only, "Take only runs that match, such as strategy=sync,per_tower");
    option("--seconds S", seconds, "Measure steps here, on the CPU, for about so long")
        .from(0.1, 86400)
        .not_with({"--step-ms", "--peak-tflops"});
    option("--threads N", threads, "Threads with which a step is measured here")
        .from(1, 4096)
        .only_with("--seconds");
    option("--clusters", clusters, "List the published clusters and bandwidths, and where the model fails")
        .only_beside({"--json"});
    option("--validate FILE...", validate, "Show how good the predictions of these probes with steps are")
        .greedy()
        .only_beside({"--json"});
    option("--json", json, "Print JSON");
    describe_data(option, data_dir);
  }
};

// A step of each run on each number of ranks, counted, and measured where that is asked for and the probe has
// not.
class Profiles {
 public:
  Profiles(const CostCommand& asked, const Json& probe) : asked_(asked), probe_(probe) {
    std::string results = "results";
    runs_ = select_runs(asked.spec.load(results).runs, asked.only, "");
    const size_t cells = runs_to_measure(runs_, 1).size() * (asked.ranks.size() + 1);
    seconds_ = asked.seconds / static_cast<double>(std::max<size_t>(cells, 1));
    prepare_to_measure(asked.threads);
  }

  std::vector<RunSpec> runs(int ranks) const { return runs_to_measure(runs_, ranks); }

  StepProfile of(const RunSpec& run, int ranks, const std::string& exchange) {
    const Json* const there = of_probe(run, exchange);
    if (there != nullptr && there->at("ranks") == ranks && !asked_.own_step_is_given())
      return read_profile(*there);
    StepProfile profile = here(run, ranks);
    if (there != nullptr && profile.refused.empty() && !asked_.own_step_is_given()) {
      const StepProfile probed = read_profile(*there);
      const StepProfile twin = measures() ? here(run, probed.ranks) : profile;
      const double growth = twin.refused.empty() && twin.is_timed() ? profile.own.mid / twin.own.mid : 1;
      profile.own = growth * probed.own;
      profile.deviation = growth * probed.deviation;
      profile.backward = growth * probed.backward;
    }
    if (asked_.step_ms > 0) {
      const double given = asked_.step_ms * 1e-3;
      profile.own = {given, given, given};
    } else if (asked_.peak_tflops > 0) {
      profile.own = step_by_peaks(profile, asked_.peak_tflops * 1e12, asked_.bandwidth_gb * 1e9);
    }
    if (asked_.own_step_is_given()) profile.backward = kShareOfBackward * profile.own.mid;
    profile.exchange = exchange;
    return profile;
  }

  std::optional<double> measured(const RunSpec& run, int ranks, const std::string& exchange) const {
    const Json* const there = asked_.own_step_is_given() ? nullptr : of_probe(run, exchange);
    return there != nullptr && there->at("ranks") == ranks
               ? std::optional(there->at("together_s").at("mean").get<double>())
               : std::nullopt;
  }

 private:
  const Json* of_probe(const RunSpec& run, const std::string& exchange) const {
    if (probe_.is_null()) return nullptr;
    const Json& steps = probe_.at("steps");
    const auto found = std::ranges::find_if(steps, [&](const Json& step) {
      return step.at("run") == run.id && step.at("exchange") == exchange && !step.contains("refused");
    });
    return found == steps.end() ? nullptr : &*found;
  }

  bool measures() const { return asked_.seconds > 0; }

  StepProfile here(const RunSpec& run, int ranks) {
    const std::vector<RunSpec> all = runs(ranks);
    const RunSpec& twin = *std::ranges::find(all, run.id, &RunSpec::id);
    const auto [place, is_new] =
        known_.try_emplace({run.id, measures() ? std::to_string(ranks) : kind_of_exchanges(twin, ranks)});
    if (is_new && measures()) {
      std::cerr << "measuring a step of " << label(run.strategy) << " as one of " << ranks
                << " ranks, for about " << significant(seconds_, 2) << " s" << std::endl;
    }
    if (is_new) {
      place->second = read_profile(as_usage([&] {
        return measures() ? own_step(twin, ranks, Device::cpu, asked_.data_dir, seconds_)
                          : counted_step(twin, ranks, asked_.data_dir, asked_.peak_tflops > 0);
      }));
    }
    return place->second;
  }

  const CostCommand& asked_;
  const Json& probe_;
  std::vector<RunSpec> runs_;
  double seconds_;
  std::map<std::pair<std::string, std::string>, StepProfile> known_;  // by run and kind of its exchanges
};

std::vector<std::string> exchanges_of(const CostCommand& asked, const Json& probe) {
  if (probe.is_null() && !asked.exchange.empty() && asked.exchange != "nccl") {
    throw Error(Error::Kind::usage,
                "--exchange " + asked.exchange +
                    ": neither published clusters nor the model of NCCL say what that takes; measure it: "
                    "bnlab probe --ranks 2 --out probe.json, and give --probe probe.json");
  }
  if (!asked.exchange.empty()) return {asked.exchange};
  if (probe.is_null()) return {"nccl"};
  std::set<std::string> found;
  for (const Json& row : probe.at("collectives")) found.insert(row.at("exchange").get<std::string>());
  if (found.empty())
    throw Error(Error::Kind::usage, asked.probe + ": has no exchanges; make it by bnlab probe --ranks 2");
  return {found.begin(), found.end()};
}

// Ranks that share memory are on one machine, which has so many cores.
bool possible(const std::string& exchange, int ranks, const Json& probe) {
  if (exchange != "shared_memory" || probe.is_null()) return true;
  const Json& fabric = probe.at("fabric");
  const Json& cores = fabric.at("environment").at("logical_cores");
  return ranks <= fabric.at("ranks").get<int>() || !cores.is_number() || ranks <= cores.get<int>();
}

StepOptions options_of(const CostCommand& asked, const std::string& exchange, const Json& probe,
                       bool is_timed) {
  bool delayed = false, spare = true;
  if (!probe.is_null()) {
    const Json& fabric = probe.at("fabric");
    delayed =
        fabric.at("added_delay_s").get<double>() > 0 || fabric.at("added_bytes_per_s").get<double>() > 0;
    spare = exchange == "nccl" || has_spare_cores(fabric);
  }
  StepOptions options = options_for(exchange, delayed, spare);
  options.host_seconds = asked.host_us * 1e-6;
  if (asked.own_step_is_given() || !is_timed) options.exchange_deviation = kExchangeDeviation;
  return options;
}

std::string percent(double share) {
  return fixed(share * 100, 1);
}

void add_checked(const std::string& title, const std::vector<CheckedPrediction>& checked, Json& json,
                 std::string& text) {
  if (checked.empty()) return;
  TextTable table{{{"what"}, {"by"}, {"predicted us"}, {"measured us", true}, {"error %", true}, {"inside"}},
                  {}};
  Json rows = Json::array();
  for (const CheckedPrediction& one : checked) {
    table.rows.push_back({one.what, one.setting, interval(one.predicted, 1e6, 4),
                          significant(one.measured * 1e6, 4), percent(one.error()),
                          one.in_interval() ? "yes" : "no"});
    rows.push_back({{"what", one.what},
                    {"by", one.setting},
                    {"predicted_s", json_of(one.predicted)},
                    {"measured_s", one.measured},
                    {"inside", one.in_interval()}});
  }
  const Quality quality = quality_of(checked);
  text += "### " + title + "\n\n" + table.markdown() + "\n" + std::to_string(quality.in_interval) + " of " +
          std::to_string(quality.count) + " inside their interval; median error " +
          percent(quality.median_error) + " %, worst " + percent(quality.worst_error) +
          " %; median factor of error " + significant(quality.median_factor, 3) + ".\n\n";
  json[title] = {{"rows", rows},
                 {"count", quality.count},
                 {"in_interval", quality.in_interval},
                 {"median_error", quality.median_error},
                 {"worst_error", quality.worst_error},
                 {"median_factor", quality.median_factor}};
}

// The tables by which the predictions are judged.
int validate(const CostCommand& asked) {
  Json json = Json::object();
  std::string text;
  add_checked("Published clusters, each by the factors of the others", clusters_without_a_probe(), json,
              text);
  add_checked("Published clusters, each size by two others", clusters_by_two_sizes(), json, text);
  add_checked("Large messages, each bandwidth by the others of its kind", bandwidths_by_others(), json, text);
  add_checked("A sweep of sizes, by its cluster's own latency and bandwidth", sweep_by_its_bandwidth(), json,
              text);
  std::vector<CheckedPrediction> steps;
  for (const std::string& file : asked.validate) {
    const auto checked = by_probe(file, [&] { return steps_of_probe(read_probe(file), file); });
    steps.insert(steps.end(), checked.begin(), checked.end());
  }
  add_checked("Steps, each by its rank's own work and the probe's exchanges", steps, json, text);
  std::cout << (asked.json ? json.dump(2) + "\n" : text);
  return exit_code::kOk;
}

int list_clusters(const CostCommand& asked) {
  TextTable table{{{"name"}, {"ranks", true}, {"path"}, {"times the model", true}, {"what"}, {"source"}}, {}};
  Json json = Json::array();
  for (const Cluster& cluster : published_clusters()) {
    const std::string source = cluster.source + ", " + std::to_string(cluster.year);
    table.rows.push_back({cluster.name, std::to_string(cluster.ranks), cluster.path,
                          significant(cluster.factor(), 3), cluster.about, source});
    json.push_back({{"name", cluster.name},
                    {"ranks", cluster.ranks},
                    {"path", cluster.path},
                    {"factor", cluster.factor()},
                    {"about", cluster.about},
                    {"source", source},
                    {"failure", or_null(cluster.failure)}});
  }
  std::string text = table.text() + "\nwithout a probe, times the model:";
  for (const std::string& path : kPaths) {
    const auto [mean, half_width] = spread_of_factors(published_clusters(), path);
    text += (path == kPaths.front() ? " " : ", ") + path + " " + significant(mean, 3) + " (" +
            significant(mean / half_width, 2) + " to " + significant(mean * half_width, 2) + ")";
  }
  text += "\n\n";
  TextTable bandwidths{{{"large all-reduces of"}, {"between GPUs"}, {"bus GB/s", true}, {"source"}}, {}};
  Json rates = Json::array();
  for (const BusBandwidth& one : published_bandwidths()) {
    const std::string source = one.source + ", " + std::to_string(one.year);
    bandwidths.rows.push_back({one.about, one.kind(), significant(one.bytes_per_s / 1e9, 3), source});
    rates.push_back({{"about", one.about},
                     {"kind", one.kind()},
                     {"bus_bytes_per_s", one.bytes_per_s},
                     {"cluster", or_null(one.cluster)},
                     {"source", source}});
  }
  text += bandwidths.text() + "\nWhere the model fails:\n";
  for (const Cluster& cluster : published_clusters())
    if (!cluster.failure.empty()) text += wrapped(cluster.name + ": " + cluster.failure, 2);
  for (const Json& failure : known_failures()) {
    text += wrapped(failure.at("case").get<std::string>() + " (" + failure.at("source").get<std::string>() +
                        "): " + failure.at("published").get<std::string>() + ". " +
                        failure.at("why").get<std::string>(),
                    2);
  }
  const Json listed{{"clusters", json}, {"bandwidths", rates}};
  std::cout << (asked.json ? listed.dump(2) + "\n" : text);
  return exit_code::kOk;
}

std::unique_ptr<Fabric> fabric_of(const CostCommand& asked, const Json& probe) {
  if (!probe.is_null())
    return probed_fabric(probe, std::filesystem::path(asked.probe).filename().string(),
                         factor_per_doubling());
  if (!asked.cluster.empty()) return cluster_fabric(asked.cluster);
  return unknown_fabric({asked.algorithm, asked.link, asked.per_node}, asked.path);
}

int predict_steps(const CostCommand& asked) {
  const Json probe = asked.probe.empty() ? Json() : read_probe(asked.probe);
  const auto fabric = fabric_of(asked, probe);
  Profiles profiles(asked, probe);
  std::vector<CostRow> rows;
  for (const std::string& exchange : exchanges_of(asked, probe)) {
    for (const int ranks : asked.ranks) {
      if (!possible(exchange, ranks, probe)) continue;
      for (const RunSpec& run : profiles.runs(ranks)) {
        CostRow row{.profile = profiles.of(run, ranks, exchange),
                    .ranks = ranks,
                    .prediction = {},
                    .relative = {},
                    .measured = profiles.measured(run, ranks, exchange)};
        const StepOptions options = options_of(asked, exchange, probe, row.profile.is_timed());
        if (row.profile.refused.empty()) row.prediction = predict_step(row.profile, *fabric, ranks, options);
        rows.push_back(std::move(row));
      }
    }
  }
  compare_with_baseline(rows);
  std::vector<std::string> notes = fabric->notes();
  if (asked.seconds > 0)
    notes.emplace_back(
        "A rank's own step was measured here, on the CPU. On a GPU it is shorter, and exchanges weigh more.");
  if (std::ranges::none_of(rows, &CostRow::is_compared))
    notes.emplace_back(
        "Nothing to compare: it takes a strategy that exchanges statistics and one that does not, such as "
        "sync and per_tower in matrix.strategy.");
  std::cout << (asked.json ? json_of(rows, *fabric, notes).dump(2) + "\n" : text_of(rows, notes));
  return exit_code::kOk;
}

int cost(const CostCommand& asked) {
  if (asked.clusters) return list_clusters(asked);
  if (!asked.validate.empty()) return validate(asked);
  if (asked.spec.name.empty())
    throw Error(Error::Kind::usage, "cost: expected a SPEC, --clusters or --validate");
  std::string results = "results";
  if (!asked.json) std::cout << network_screen(asked.spec.load(results).runs) << std::flush;
  const auto predict = [&] { return predict_steps(asked); };
  return asked.probe.empty() ? predict() : by_probe(asked.probe, predict);
}

const Command cost_command(more::named("cost"),
                           "  bnlab cost sync_overhead --ranks 2,8,64 --probe probe.json\n"
                           "  bnlab cost tradeoff --ranks 8,64,1024 --cluster h100-2x8 --step-ms 100\n"
                           "  bnlab cost --clusters             published clusters against the model\n"
                           "  bnlab cost --validate probe.json  how good the predictions are",
                           cost);

}  // namespace
}  // namespace bnlab
