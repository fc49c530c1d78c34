#include "harness/panel/measure.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/error.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/panel/made_files.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/rank.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsOf = "weights of ";  // in front of an entry, as the file of init_from

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "bnlab-panel-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(Error::Kind::environment, "cannot make " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// While it lives, operators use one thread each.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

// The entry's ranks as threads of this process; the report of rank 0.
RankReport train(const PanelEntry& entry, const RunSpec& spec, const fs::path& data, const fs::path& run) {
  const LoopbackSocket socket;
  std::vector<RankReport> reports(static_cast<size_t>(entry.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < entry.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankJob job;
      job.spec = spec;
      job.rendezvous.rank = rank;
      job.rendezvous.size = entry.ranks;
      job.rendezvous.port = socket.port();
      job.rendezvous.listen_fd =
          rank == 0 && entry.ranks > 1 ? ::dup(socket.fd()) : -1;  // the store closes it
      job.data_dir = data.string();
      job.run_dir = run.string();
      reports[static_cast<size_t>(rank)] = run_rank(job);
    });
  }
  threads.clear();  // joins them
  return reports[0];
}

// The sum over all elements, each times a number of its own, of the tensors whose names end like one of
// `endings` (of all others, where `others`).
double projected(const std::vector<NamedTensor>& tensors, const std::vector<std::string>& endings,
                 bool others = false) {
  double sum = 0;
  int64_t place = 0;
  for (const auto& [name, tensor] : tensors) {
    const bool is_one =
        std::ranges::any_of(endings, [&](const std::string& end) { return name.ends_with(end); });
    if (is_one == others) continue;
    const at::Tensor values = tensor.to(at::kDouble).reshape({-1});
    const at::Tensor factors =
        at::arange(place, place + values.numel(), at::kDouble).mul_(0.7390851332).cos_();
    sum += values.dot(factors).item<double>();
    place += values.numel();
  }
  return sum;
}

Json rounded(
    double value) {  // to digits that another processor may still round otherwise, which the tolerance allows
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.11g", value);
  return Json(std::strtod(text, nullptr));
}

void add_numbers(const fs::path& run, const Json& result, Json& values) {
  std::ifstream log(run / kMetricsFile);
  Json last;
  for (std::string line; std::getline(log, line);) {
    const Json told = Json::parse(line);
    if (told.at("kind") != "train") continue;
    values["loss " + std::to_string(told.at("step").get<int64_t>())] =
        told.at("loss").is_number() ? rounded(told.at("loss").get<double>()) : told.at("loss");
    last = told.value("gradient_norm", Json());
  }
  if (last.is_number()) values["gradient norm"] = rounded(last.get<double>());
  for (const auto& [population, metrics] : result.at("final").items()) {
    for (const auto& [metric, value] : metrics.items()) {
      if (value.is_number()) values[population + " " + metric] = rounded(value.get<double>());
    }
  }
  const Json& history = result.at("history");  // the last entry is `final`
  for (size_t i = 0; i + 1 < history.size(); ++i) {
    const std::string step = "step " + std::to_string(history[i].at("step").get<int64_t>()) + " ";
    const Json& headline = history[i].at(result.at("headline").get<std::string>());
    for (const auto& [population, value] : headline.items()) {
      if (value.is_number()) values[step + population] = rounded(value.get<double>());
    }
  }
  const std::vector<NamedTensor> weights = read_safetensors((run / kWeightsFile).string());
  values["weights"] = rounded(projected(weights, {".running_mean", ".running_var"}, true));
  const auto has_statistics = [](const NamedTensor& t) { return t.name.ends_with(".running_mean"); };
  if (std::ranges::any_of(weights, has_statistics)) {
    values["running_mean"] = rounded(projected(weights, {".running_mean"}));
    values["running_var"] = rounded(projected(weights, {".running_var"}));
  }
  if (fs::exists(run / kPopulationsFile)) {
    const std::vector<NamedTensor> pairs = read_safetensors((run / kPopulationsFile).string());
    values["populations' means"] = rounded(projected(pairs, {".running_mean"}));
    values["populations' variances"] = rounded(projected(pairs, {".running_var"}));
  }
}

Json keys_with_weights(const PanelEntry& entry, const fs::path& scratch) {
  Json keys = entry.keys;
  const Json* file = find(keys, "init_from.file");
  if (file == nullptr || !file->is_string() || !file->get<std::string>().starts_with(kWeightsOf)) return keys;
  const PanelEntry& from = panel_entry(file->get<std::string>().substr(std::string(kWeightsOf).size()));
  const fs::path run = scratch / "weights";
  fs::create_directories(run);
  train(from, read_resolved(from.keys), "", run);
  set(keys, "init_from.file", (run / kWeightsFile).string());
  return keys;
}

}  // namespace

std::optional<Json> measure(const PanelEntry& entry, std::string& why) {
  static const bool prepared = (prepare_thread_ranks(), true);
  (void)prepared;
  why.clear();
#ifndef BNLAB_WITH_IMAGES
  if (entry.reads_files) {
    why = "this build has no libjpeg and libpng";
    return std::nullopt;
  }
#endif
  const OneThread one_thread;
  const ScratchFolder scratch;
  const fs::path data = scratch.path() / "data", run = scratch.path() / "run";
  fs::create_directories(data);
  fs::create_directories(run);
  if (entry.reads_files) make_files(data, lifted(entry.keys.at("task")).at("name").get<std::string>());
  const RankReport report = train(entry, read_resolved(keys_with_weights(entry, scratch.path())), data, run);
  Json values = Json::object();
  if (report.status != Status::ok) values["outcome"] = name(report.status) + ": " + report.message;
  if (!report.result.is_null()) add_numbers(run, report.result, values);
  return values;
}

}  // namespace bnlab
