#include "harness/launch/placing.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/host/environment_world.hpp"
#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/store/record.hpp"
#include "harness/support/error.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

constexpr int kMostRanks = 4096;

// As the runs of an experiment's folder were started last, as far as somebody said where; what nobody said is
// left to the machine.
struct LastPlacement {
  int ranks = 0;
  std::optional<Device> device;
  std::optional<Exchange> exchange;
};

std::filesystem::path placement_file(const LaunchRequest& request, const Experiment& experiment) {
  return experiment_folder(request.results_dir, experiment.name) / kPlacementFile;
}

template <class Choice>
std::optional<Choice> choice_in(const Json& file, const char* key) {
  const Json& value = value_at(file, key);
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  const std::vector<std::string> known = split_names(names(Choice{}));
  return std::ranges::count(known, name) > 0 ? std::optional(choice_of<Choice>(name)) : std::nullopt;
}

LastPlacement last_placement(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  const Json kept = read_json(file);
  const Json& ranks = value_at(kept, "ranks");
  const bool has_ranks = ranks.is_number_unsigned() && ranks <= kMostRanks;
  return {has_ranks ? ranks.get<int>() : 0, choice_in<Device>(kept, "device"),
          choice_in<Exchange>(kept, "exchange")};
}

int largest_divisor(int64_t towers, int limit) {
  int ranks = static_cast<int>(std::min<int64_t>(limit, towers));
  while (towers % ranks != 0) --ranks;
  return ranks;
}

void remark(std::vector<std::string>& remarks, const std::string& sentence) {
  if (std::find(remarks.begin(), remarks.end(), sentence) == remarks.end()) remarks.push_back(sentence);
}

int choose_ranks(const RunSpec& run, const LaunchRequest& request, const LastPlacement& last,
                 const WorldFacts& facts, int gpus, std::vector<std::string>& remarks) {
  const int asked = facts.joined() ? facts.ranks : request.ranks;
  const std::string towers = std::to_string(run.towers());
  if (run.ranks) {
    if (asked > 0 && asked != *run.ranks) {
      remark(remarks, "the spec places runs on " + std::to_string(*run.ranks) + " ranks; --ranks " +
                          std::to_string(asked) + " does not apply to them");
    }
    if (run.towers() % *run.ranks != 0) {
      throw Error(Error::Kind::spec, run.id + ": placement.ranks is " + std::to_string(*run.ranks) +
                                         ", which does not divide its " + towers + " towers");
    }
    return *run.ranks;
  }
  const bool as_before = asked == 0 && last.ranks > 0 && (gpus == 0 || last.ranks <= gpus);
  if (as_before) {
    remark(remarks, "ranks: " + std::to_string(last.ranks) +
                        ", as when runs of this folder were started last; "
                        "--ranks chooses otherwise");
  }
  const int wanted = asked > 0 ? asked : as_before ? last.ranks : std::max(1, gpus);
  const int ranks = largest_divisor(run.towers(), wanted);
  if (ranks != wanted && asked > 0) {
    remark(remarks, "runs with " + towers + " towers use " + std::to_string(ranks) +
                        (ranks == 1 ? " rank: " : " ranks: ") + std::to_string(wanted) +
                        " does not divide the towers");
  }
  return ranks;
}

std::string several(int count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// Where neither the spec nor the command line says it, the GPUs are used if every rank can have one.
Device default_device(const RunSpec& run, const LaunchRequest& request, const LastPlacement& last,
                      const WorldFacts& facts, PlacedRun& place, std::vector<std::string>& remarks) {
  const int gpus = facts.gpus();
  if (gpus == 0) return Device::cpu;
  const int ranks = choose_ranks(run, request, last, facts, gpus, remarks);
  const bool over_peers = (run.exchange ? run.exchange : request.exchange) == Exchange::peers;
  if (ranks <= gpus || over_peers || (facts.joined() && gpus_are_shared())) return Device::cuda;
  if (facts.joined()) {
    throw Error(
        Error::Kind::environment,
        "the " + several(ranks, "rank") + " of this world see " + several(gpus, "GPU") +
            "; let each see one of its own (SLURM: --gpus-per-task=1), start as many ranks as there are "
            "GPUs, or give --device cpu");
  }
  place.notes.push_back("runs with " + several(ranks, "rank") + " use the CPU, because there " +
                        (gpus == 1 ? "is " : "are ") + several(gpus, "GPU") + " and no --device was given");
  remark(remarks, place.notes.back());
  return Device::cpu;
}

Device choose_device(const RunSpec& run, const LaunchRequest& request, const LastPlacement& last,
                     const WorldFacts& facts, PlacedRun& place, std::vector<std::string>& remarks) {
  if (run.device) {
    if (request.device && request.device != run.device) {
      remark(remarks, "the spec places runs on " + name_of(*run.device) + "; --device " +
                          name_of(*request.device) + " does not apply to them");
    }
    return *run.device;
  }
  if (!request.device && last.device == Device::cpu && facts.gpus() > 0) {
    remark(remarks, "device: cpu, as when runs of this folder were started last; --device chooses otherwise");
    return Device::cpu;
  }
  return request.device ? *request.device : default_device(run, request, last, facts, place, remarks);
}

std::optional<Exchange> choose_exchange(const RunSpec& run, const LaunchRequest& request,
                                        const LastPlacement& last, const WorldFacts& facts,
                                        const Placement& placement, std::vector<std::string>& remarks) {
  const bool on_gpus = placement.device == Device::cuda;
  const std::optional<Exchange> wanted = run.exchange ? run.exchange : request.exchange;
  if (placement.ranks == 1 || (on_gpus && wanted != Exchange::peers)) {
    if (request.exchange)
      remark(remarks, on_gpus ? "--exchange does not apply to runs on GPUs, but for peers, or on one rank"
                              : "--exchange does not apply to runs on one rank");
    return std::nullopt;
  }
  if (wanted == Exchange::peers && !on_gpus) {
    throw Error(Error::Kind::usage,
                run.id + ": ranks on CPUs exchange by shared_memory or sockets; peers takes --device cuda");
  }
  if (run.exchange && request.exchange && run.exchange != request.exchange) {
    remark(remarks, "the spec exchanges through " + name_of(*run.exchange) + "; --exchange " +
                        name_of(*request.exchange) + " does not apply to it");
  }
  if (wanted && wanted != Exchange::sockets && !facts.one_host) {
    throw Error(Error::Kind::environment,
                run.id + ": the ranks of this world are on several hosts, which share no memory; " +
                    (on_gpus ? "leave --exchange peers away" : "give --exchange sockets"));
  }
  if (on_gpus) return wanted;
  if (!wanted && last.exchange == Exchange::sockets && facts.one_host) {
    remark(remarks,
           "exchange: sockets, as when runs of this folder were started last; --exchange chooses otherwise");
    return Exchange::sockets;
  }
  return wanted.value_or(facts.one_host ? Exchange::shared_memory : Exchange::sockets);
}

// The spec's number comes first, because a launcher's may be nobody's choice: torchrun sets OMP_NUM_THREADS
// to 1 by itself.
int choose_threads(const RunSpec& run, const LaunchRequest& request, const WorldFacts& facts, int ranks,
                   std::vector<std::string>& remarks) {
  const int given = request.threads > 0 ? request.threads : facts.threads;
  if (!run.threads) return given > 0 ? given : std::max(1, facts.cores / (ranks * request.jobs));
  if (given > 0 && given != *run.threads) {
    remark(remarks, "the spec gives each rank " + several(*run.threads, "thread") + "; " +
                        std::to_string(given) + ", from --threads or the launcher, does not apply");
  }
  return *run.threads;
}

// Several ranks share a GPU where the user allows it, or exchange over peers; else this throws Error
// (environment).
void share_gpus(PlacedRun& place, const WorldFacts& facts) {
  const int gpus = facts.gpus();
  const std::string ranks = several(place.placement.ranks, "rank");
  if (gpus == 0 || (!gpus_are_shared() && place.placement.exchange != Exchange::peers)) {
    const std::string need = ranks + (place.placement.ranks == 1 ? " needs a GPU" : " need as many GPUs");
    if (!built_with_cuda()) {
      throw Error(Error::Kind::environment, place.spec.id + ": " + need +
                                                ", and this program was built without its CUDA kernels; " +
                                                kBuildWithCuda + " builds them, or give --device cpu");
    }
    const std::string seen = gpus == 0 ? "none is" : std::to_string(gpus) + (gpus == 1 ? " is" : " are");
    throw Error(Error::Kind::environment, place.spec.id + ": " + need + ", and " + seen +
                                              " visible; lower --ranks or give --device cpu");
  }
  place.placement.shared_gpus = true;
  place.notes.push_back(ranks + " shared " + several(gpus, "GPU") +
                        ": their speed is not that of as many GPUs");
}

}  // namespace

std::vector<int> GpuShares::take(int ranks) {
  std::vector<int> order(runs_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return runs_.at(a) < runs_.at(b); });
  std::vector<int> taken;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    taken.push_back(order.at(rank % order.size()));
    ++runs_.at(taken.back());
  }
  return taken;
}

void GpuShares::give_back(const std::vector<int>& gpus) {
  for (const int gpu : gpus) --runs_.at(gpu);
}

DealtGpus agree_on_gpus(const EnvironmentWorld& world, std::optional<Device> device) {
  Rendezvous place = world.rendezvous;
  place.prefix = "gpus";
  place.timeout = world.meeting_timeout;
  DealtGpus dealt = deal_gpus(gpus_told(gather_texts(place, gpus_to_tell(names_of_gpus()))));
  const std::optional<int> without = dealt.rank_without();
  if (device != Device::cpu && without && std::ranges::count(dealt.of_rank, -1) < world.rendezvous.size) {
    throw Error(Error::Kind::environment,
                "rank " + std::to_string(*without) +
                    " of this world sees no GPU, and other ranks do; let each see one of "
                    "its own (SLURM: --gpus-per-task=1), or give --device cpu");
  }
  return dealt;
}

WorldFacts this_machine() {
  return {.cores = usable_cores(), .gpus = visible_gpus};
}

std::vector<PlacedRun> place_runs(const Experiment& experiment, std::vector<RunSpec> runs,
                                  const LaunchRequest& request, const WorldFacts& facts,
                                  std::vector<std::string>& remarks) {
  const LastPlacement last =
      facts.joined() ? LastPlacement() : last_placement(placement_file(request, experiment));
  const NamedParts named{.ranks = request.ranks > 0 || facts.joined(),
                         .device = request.device.has_value(),
                         .exchange = request.exchange.has_value(),
                         .by_launcher = facts.joined()};
  std::vector<PlacedRun> placed;
  placed.reserve(runs.size());
  for (RunSpec& asked : runs) {
    PlacedRun& place = placed.emplace_back();
    place.spec = std::move(asked);
    const RunSpec& run = place.spec;
    place.named = named;
    place.placement.device = choose_device(run, request, last, facts, place, remarks);
    place.placement.ranks =
        choose_ranks(run, request, last, facts, place.on_gpus() ? facts.gpus() : 0, remarks);
    place.placement.exchange = choose_exchange(run, request, last, facts, place.placement, remarks);
    if (place.on_gpus() && place.placement.ranks > facts.gpus()) share_gpus(place, facts);
    place.placement.nodes = facts.nodes;
    place.placement.towers_per_rank = run.towers() / place.placement.ranks;
    place.folder = run_folder(request.results_dir, experiment.name, run.id, place.placement);
    place.threads = choose_threads(run, request, facts, place.placement.ranks, remarks);
  }
  return placed;
}

void remember_placement(const Experiment& experiment, const std::vector<PlacedRun>& start,
                        const LaunchRequest& request) {
  const auto said = std::ranges::find_if(start, [](const PlacedRun& run) {
    return !run.spec.ranks && (run.named.ranks || run.named.device || run.named.exchange);
  });
  if (said == start.end()) return;
  const std::filesystem::path file = placement_file(request, experiment);
  LastPlacement now = last_placement(file);  // what this call leaves unsaid stays as it was
  if (said->named.ranks) now.ranks = said->named.by_launcher ? said->placement.ranks : request.ranks;
  if (request.device) now.device = request.device;
  if (request.exchange) now.exchange = request.exchange;
  const auto name = [](const auto& choice) { return choice ? Json(name_of(*choice)) : Json(); };
  const Json asked{{"ranks", now.ranks > 0 ? Json(static_cast<uint64_t>(now.ranks)) : Json()},
                   {"device", name(now.device)},
                   {"exchange", name(now.exchange)}};
  std::filesystem::create_directories(file.parent_path());
  if (!std::filesystem::exists(file) || read_text(file) != asked.dump(2) + "\n") write_json(file, asked);
}

int jobs_side_by_side(const Experiment& experiment, const std::vector<RunSpec>& runs,
                      const LaunchRequest& request, const WorldFacts& facts) {
  if (request.jobs != kAutoJobs) return request.jobs;
  LaunchRequest alone = request;
  alone.jobs = 1;
  std::vector<std::string> said_when_placed;
  int jobs = std::max(1, static_cast<int>(runs.size()));
  for (const PlacedRun& run : place_runs(experiment, runs, alone, facts, said_when_placed)) {
    const int threads = run.spec.threads.value_or(std::max(1, request.threads));
    const int needed = run.placement.ranks * (run.on_gpus() ? 1 : threads);
    jobs = std::clamp((run.on_gpus() ? facts.gpus() : facts.cores) / needed, 1, jobs);
  }
  return jobs;
}

}  // namespace bnlab
