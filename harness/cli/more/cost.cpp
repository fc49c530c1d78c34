// bnlab cost: what a step of each strategy takes on so many ranks, predicted: its own work, measured here or
// in a probe, and its exchanges, by a probe or by a published cluster.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "harness/cli/more/more.hpp"
#include "harness/cli/network_screen.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/cores.hpp"
#include "harness/error.hpp"
#include "harness/launch/selection.hpp"
#include "harness/mapped.hpp"
#include "harness/prediction/clusters.hpp"
#include "harness/prediction/step.hpp"
#include "harness/prediction/validation.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/steps.hpp"
#include "harness/store/record.hpp"
#include "harness/tasks/task_facts.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

// Where no step was measured: seconds from rank to rank at an exchange, and the share of a step.
constexpr double kExchangeDeviation = 2e-6, kShareOfBackward = 2.0 / 3;

struct CostCommand {
  std::string spec;
  std::vector<std::string> overrides, only;
  std::vector<int> ranks{2, 8, 64, 256, 1024};
  std::string probe, cluster, exchange, algorithm = "tree", link = "nvlink", data_dir;
  int per_node = 8;
  std::vector<std::string> validate;
  double seconds = 60, step_ms = 0, host_us = 0, peak_tflops = 0, bandwidth_gb = 0;
  bool own_step_is_given() const { return step_ms > 0 || peak_tflops > 0; }
  int threads = 1;
  bool clusters = false;
  bool json = false;
};

struct Row {
  StepProfile profile;
  int ranks = 1;
  StepPrediction prediction;
  Estimate relative;               // images/s over those of the baseline
  std::optional<double> measured;  // seconds of the step, where the probe has it
};

// A step of each run on each number of ranks, measured where the probe has not.
class Profiles {
 public:
  Profiles(const CostCommand& asked, const Json& probe) : asked_(asked), probe_(probe) {
    std::string results = "results";
    runs_ = select_runs(load_asked(asked.spec, results, asked.overrides).runs, asked.only, "");
    const size_t cells = runs_to_measure(runs_, 1).size() * (asked.ranks.size() + 1);
    // Where the step is given, what it exchanges is all that is asked of a step here.
    seconds_ =
        asked.own_step_is_given() ? 0 : asked.seconds / static_cast<double>(std::max<size_t>(cells, 1));
    prepare_to_measure(asked.threads);
  }

  std::vector<RunSpec> runs(int ranks) const { return runs_to_measure(runs_, ranks); }

  StepProfile of(const RunSpec& run, int ranks, const std::string& exchange) {
    const Json* const there = of_probe(run, exchange);
    if (there != nullptr && there->at("ranks") == ranks && !asked_.own_step_is_given())
      return read_profile(*there);
    StepProfile profile = here(run, ranks);
    if (there != nullptr && profile.refused.empty()) {
      const StepProfile probed = read_profile(*there);
      const StepProfile twin = here(run, probed.ranks);
      const double growth = twin.refused.empty() ? profile.own.mid / twin.own.mid : 1;
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

  StepProfile here(const RunSpec& run, int ranks) {
    const auto [place, is_new] = measured_.try_emplace({run.id, ranks});
    if (is_new) {
      std::cerr << (asked_.own_step_is_given() ? "counting" : "measuring") << " a step of "
                << label(run.strategy) << " as one of " << ranks << " ranks" << std::endl;
      const std::vector<RunSpec> all = runs(ranks);
      const auto twin = std::ranges::find(all, run.id, &RunSpec::id);
      place->second = read_profile(
          as_usage([&] { return own_step(*twin, ranks, Device::cpu, asked_.data_dir, seconds_); }));
    }
    return place->second;
  }

  const CostCommand& asked_;
  const Json& probe_;
  std::vector<RunSpec> runs_;
  double seconds_;
  std::map<std::pair<std::string, int>, StepProfile> measured_;
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

StepOptions options_of(const CostCommand& asked, const std::string& exchange, const Json& probe) {
  bool delayed = false, spare = true;
  if (!probe.is_null()) {
    const Json& fabric = probe.at("fabric");
    delayed =
        fabric.at("added_delay_s").get<double>() > 0 || fabric.at("added_bytes_per_s").get<double>() > 0;
    spare = exchange == "nccl" || has_spare_cores(fabric);
  }
  StepOptions options = options_for(exchange, delayed, spare);
  options.host_seconds = asked.host_us * 1e-6;
  if (asked.own_step_is_given()) options.exchange_deviation = kExchangeDeviation;
  return options;
}

// Images/s of each row over those of the first strategy of the same model, exchange and ranks that exchanges
// nothing but gradients.
void compare_with_baseline(std::vector<Row>& rows) {
  for (Row& row : rows) {
    const auto baseline = std::ranges::find_if(rows, [&](const Row& other) {
      return other.ranks == row.ranks && other.profile.model == row.profile.model &&
             other.profile.refused.empty() && other.profile.exchange == row.profile.exchange &&
             other.profile.images == row.profile.images && !other.profile.exchanges_statistics();
    });
    if (baseline == rows.end() || !row.profile.refused.empty()) continue;
    // What is uncertain is what this row takes more than the baseline: the rest is slow or fast for both.
    const StepPrediction &own = row.prediction, &base = baseline->prediction;
    const double shared = base.step().mid;
    const auto share = [&](double Estimate::* end) {
      return shared / (own.own.mid + own.gradients.mid + own.statistics.*end + base.stragglers.mid +
                       own.stragglers.*end - base.stragglers.*end);
    };
    const double mid = share(&Estimate::mid);  // of the ends the baseline's may be the farther ones
    const auto [low, high] = std::minmax({share(&Estimate::high), mid, share(&Estimate::low)});
    row.relative = {low, mid, high};
  }
}

std::string interval(const Estimate& estimate, double unit, int digits) {
  return significant(estimate.mid * unit, digits) + " (" + significant(estimate.low * unit, digits) + " - " +
         significant(estimate.high * unit, digits) + ")";
}

std::string text_of(const std::vector<Row>& rows, const std::vector<std::string>& notes) {
  TextTable table{{{"model"},
                   {"strategy"},
                   {"over"},
                   {"ranks", true},
                   {"images\n/rank", true},
                   {"step ms"},
                   {"images/s"},
                   {"% of baseline"},
                   {"exposed ms"},
                   {"memory\nMiB/rank", true},
                   {"measured ms", true}},
                  {}};
  std::string text;
  for (const Row& row : rows) {
    if (!row.profile.refused.empty()) {
      text += row.profile.strategy + " on " + std::to_string(row.ranks) +
              " ranks: refused: " + row.profile.refused + "\n";
      continue;
    }
    const Estimate step = row.prediction.step();
    const double images = row.profile.images * row.ranks;
    table.rows.push_back(
        {row.profile.model, row.profile.strategy, row.profile.exchange, std::to_string(row.ranks),
         significant(row.profile.images, 4), interval(step, 1e3, 3),
         interval({images / step.high, images / step.mid, images / step.low}, 1, 3),
         row.relative.mid > 0 ? interval(row.relative, 100, 3) : "-",
         interval(row.prediction.exposed(), 1e3, 3), fixed(row.profile.peak_memory_bytes / (1 << 20), 0),
         row.measured ? significant(*row.measured * 1e3, 3) : ""});
  }
  text = table.text() + text +
         "\nIn brackets: the interval. The baseline: the first strategy that exchanges gradients alone.\n";
  for (const std::string& note : notes) text += wrapped(note);
  return text;
}

Json json_of(const Estimate& estimate) {
  return {{"low", estimate.low}, {"mid", estimate.mid}, {"high", estimate.high}};
}

Json json_of(const std::vector<Row>& rows, const Fabric& fabric, const std::vector<std::string>& notes) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json json{{"run", row.profile.run},
              {"model", row.profile.model},
              {"strategy", row.profile.strategy},
              {"exchange", row.profile.exchange},
              {"ranks", row.ranks},
              {"images_per_rank", row.profile.images}};
    if (!row.profile.refused.empty()) {
      json["refused"] = row.profile.refused;
    } else {
      json["step_s"] = json_of(row.prediction.step());
      json["own_s"] = json_of(row.prediction.own);
      json["statistics_s"] = json_of(row.prediction.statistics);
      json["gradients_s"] = json_of(row.prediction.gradients);
      json["stragglers_s"] = json_of(row.prediction.stragglers);
      json["relative_images_per_s"] = json_of(row.relative);
      json["peak_memory_bytes"] = row.profile.peak_memory_bytes;
      json["measured_step_s"] = or_null(row.measured);
    }
    list.push_back(std::move(json));
  }
  return {{"fabric", fabric.name()}, {"notes", notes}, {"rows", list}};
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
  TextTable table{{{"name"}, {"ranks", true}, {"times the model", true}, {"what"}, {"source"}}, {}};
  Json json = Json::array();
  for (const Cluster& cluster : published_clusters()) {
    const std::string source = cluster.source + ", " + std::to_string(cluster.year);
    table.rows.push_back({cluster.name, std::to_string(cluster.ranks), significant(cluster.factor(), 3),
                          cluster.about, source});
    json.push_back({{"name", cluster.name},
                    {"ranks", cluster.ranks},
                    {"factor", cluster.factor()},
                    {"about", cluster.about},
                    {"source", source},
                    {"failure", or_null(cluster.failure)}});
  }
  const FactorSpread spread = spread_of_factors(published_clusters());
  std::string text = table.text() + "\nwithout a probe: " + significant(spread.mean, 3) +
                     " times the model, from " + significant(spread.mean / spread.half_width, 2) + " to " +
                     significant(spread.mean * spread.half_width, 2) + "\n\n";
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
  return unknown_fabric({asked.algorithm, asked.link, asked.per_node});
}

int predict_steps(const CostCommand& asked) {
  const Json probe = asked.probe.empty() ? Json() : read_probe(asked.probe);
  const auto fabric = fabric_of(asked, probe);
  Profiles profiles(asked, probe);
  std::vector<Row> rows;
  for (const std::string& exchange : exchanges_of(asked, probe)) {
    const StepOptions options = options_of(asked, exchange, probe);
    for (const int ranks : asked.ranks) {
      if (!possible(exchange, ranks, probe)) continue;
      for (const RunSpec& run : profiles.runs(ranks)) {
        Row row{profiles.of(run, ranks, exchange), ranks, {}, {}, profiles.measured(run, ranks, exchange)};
        if (row.profile.refused.empty()) row.prediction = predict_step(row.profile, *fabric, ranks, options);
        rows.push_back(std::move(row));
      }
    }
  }
  compare_with_baseline(rows);
  std::vector<std::string> notes = fabric->notes();
  if (probe.is_null() && !asked.own_step_is_given()) {
    notes.emplace_back(
        "A rank's own step was measured here, on the CPU. On a GPU it is shorter, and exchanges weigh more: "
        "give --step-ms, or --peak-tflops and --bandwidth-gb.");
  }
  std::cout << (asked.json ? json_of(rows, *fabric, notes).dump(2) + "\n" : text_of(rows, notes));
  return exit_code::kOk;
}

// Of the first network among the runs that somebody has exported.
std::string screen_of(const CostCommand& asked) {
  std::string results = "results";
  for (const RunSpec& run :
       select_runs(load_asked(asked.spec, results, asked.overrides).runs, asked.only, "")) {
    const ImageSizes sizes = facts_of<TaskFacts>(run.task).image_sizes(run.task);
    if (sizes.empty()) continue;
    const NetworkScreen screen =
        network_screen(run.model, sizes.front(), std::ranges::max(run.samples_per_tower));
    if (!screen.text.empty()) return screen.text;
  }
  return "";
}

int cost(const CostCommand& asked) {
  if (asked.clusters) return list_clusters(asked);
  if (!asked.validate.empty()) return validate(asked);
  if (asked.spec.empty()) throw Error(Error::Kind::usage, "cost: expected a SPEC, --clusters or --validate");
  if (!asked.json) std::cout << screen_of(asked) << std::flush;
  const auto predict = [&] { return predict_steps(asked); };
  return asked.probe.empty() ? predict() : by_probe(asked.probe, predict);
}

}  // namespace

void add_cost(Program& program) {
  auto [command, request] =
      add_command(program, more::kCost,
                  "  bnlab cost sync_overhead --ranks 2,8,64 --probe probe.json\n"
                  "  bnlab cost tradeoff --ranks 8,64,1024 --cluster h100-2x8 --step-ms 100\n"
                  "  bnlab cost --clusters             published clusters against the model\n"
                  "  bnlab cost --validate probe.json  how good the predictions are",
                  cost);
  command.add_option("SPEC", request.spec,
                     "Spec file, the name of one in experiments/, or a folder of results");
  add_overrides(command, request.overrides);
  command.add_option("--ranks", request.ranks, "Numbers of ranks, such as 2,8,64, with a tower on each")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--probe", request.probe,
                  "Predict by a file of bnlab probe --out: by its exchanges, and its steps if it has them")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  command.add_option("--cluster", request.cluster, "Predict by a published cluster, which --clusters lists")
      ->type_name("NAME")
      ->excludes("--probe");
  const auto without_measurements = [](CLI::Option* option) {
    option->excludes("--probe")->excludes("--cluster")->capture_default_str();
  };
  without_measurements(
      command.add_option("--algorithm", request.algorithm, "Algorithm of NCCL: tree, ring or nvls")
          ->type_name("NAME")
          ->check(one_of({"tree", "ring", "nvls"})));
  without_measurements(command.add_option("--per-node", request.per_node, "GPUs of a node")
                           ->type_name("N")
                           ->check(CLI::Range(1, 4096)));
  without_measurements(command.add_option("--link", request.link, "Link of a node's GPUs: nvlink or pcie")
                           ->type_name("NAME")
                           ->check(one_of({"nvlink", "pcie"})));
  command
      .add_option("--exchange", request.exchange,
                  "How ranks exchange: nccl, shared_memory or sockets. Default: all of the probe, else nccl")
      ->type_name("HOW")
      ->check(one_of({"nccl", "shared_memory", "sockets"}));
  command
      .add_option("--step-ms", request.step_ms,
                  "Milliseconds of a rank's own step. Default: of the probe, else measured here, on the CPU")
      ->type_name("MS")
      ->check(CLI::Range(1e-3, 1e7));
  CLI::Option* const peak = command
                                .add_option("--peak-tflops", request.peak_tflops,
                                            "Predict steps by a device's peak in TFLOP/s at the spec's "
                                            "precision: from its floor to twice it")
                                ->type_name("T")
                                ->check(CLI::Range(1e-3, 1e6))
                                ->excludes("--step-ms");
  command.add_option("--bandwidth-gb", request.bandwidth_gb, "Bandwidth of a device's memory in GB/s")
      ->type_name("GB/S")
      ->check(CLI::Range(1e-3, 1e6))
      ->needs(peak);
  peak->needs("--bandwidth-gb");
  command
      .add_option("--host-us", request.host_us,
                  "Microseconds of the host per exchange that no CUDA graph launches (20 to 30 in PyTorch)")
      ->type_name("US")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--only", request.only, "Take only runs that match, such as strategy=sync,per_tower")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  command.add_option("--threads", request.threads, "Threads with which a step is measured here")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--seconds", request.seconds, "Seconds that measuring steps may take, about")
      ->type_name("S")
      ->check(CLI::Range(0.1, 86400.0))
      ->excludes("--step-ms")
      ->excludes(peak)
      ->capture_default_str();
  const CLI::Option* clusters =
      command.add_flag("--clusters", request.clusters,
                       "List the published clusters and bandwidths, and where the model fails");
  CLI::Option* probes = command.add_option("--validate", request.validate,
                                           "Show how good the predictions of these probes with steps are");
  probes->type_name("FILE...");
  const CLI::Option* json = add_json_flag(command, request.json);
  stand_alone(command, {clusters, probes}, {json});
  add_data_option(command, request.data_dir);
}

}  // namespace bnlab
