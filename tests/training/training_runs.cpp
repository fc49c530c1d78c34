#include "tests/training/training_runs.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

[[maybe_unused]] const bool prepared = (prepare_thread_ranks(), true);  // before main() has threads

std::map<std::string, at::Tensor> read(const fs::path& file) {
  std::map<std::string, at::Tensor> tensors;
  for (const NamedTensor& t : read_safetensors(file.string())) tensors[t.name] = t.tensor;
  return tensors;
}

bool is_statistics(const std::string& name) {
  return name.find(".running_") != std::string::npos;
}

std::map<std::string, at::Tensor> part(const TrainedRun& run, bool statistics) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : run.tensors)
    if (is_statistics(name) == statistics) found[name] = tensor;
  return found;
}

}  // namespace

TrainingRuns::TrainingRuns(std::string data_dir)
    : data_dir_(std::move(data_dir)),
      folder_(fs::temp_directory_path() / ("bnlab_training_" + std::to_string(::getpid()))) {
  fs::create_directories(folder_);
}

TrainingRuns::~TrainingRuns() {
  fs::remove_all(folder_);
}

RunSpec TrainingRuns::spec(const Json& keys) {
  Json all = Json::parse(R"({"task": {"name": "shapes", "size": [16, 16], "train": 24, "test": 11},
    "model": {"name": "unet", "base": 8, "levels": 2}, "strategy": "sync", "precision": "float64", "steps": 5,
    "log_every": 1, "warmup_steps": 1, "towers": 4, "batch_per_tower": 2, "seed": 3,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001}})");
  all.update(keys);
  return read_resolved(all);
}

fs::path TrainingRuns::new_folder() {
  const fs::path folder = folder_ / std::to_string(runs_++);
  fs::create_directories(folder);
  return folder;
}

std::vector<RankReport> TrainingRuns::reports(const RunSpec& spec, int ranks, const fs::path& folder,
                                              Device device) {
  const LoopbackSocket socket;
  std::vector<RankReport> reports(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankJob job;
      job.spec = spec;
      job.rendezvous.rank = rank;
      job.rendezvous.size = ranks;
      job.rendezvous.port = socket.port();
      job.rendezvous.listen_fd = rank == 0 && ranks > 1 ? ::dup(socket.fd()) : -1;  // the store closes it
      job.device = device;
      job.data_dir = data_dir_;
      job.run_dir = folder.string();
      reports[static_cast<size_t>(rank)] = run_rank(job);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

TrainedRun TrainingRuns::run(const RunSpec& spec, int ranks, Device device) {
  return run_in(new_folder(), spec, ranks, device);
}

TrainedRun TrainingRuns::run_in(const fs::path& folder, const RunSpec& spec, int ranks, Device device) {
  TrainedRun run;
  run.folder = folder;
  const std::vector<RankReport> all = reports(spec, ranks, run.folder, device);
  for (const RankReport& report : all) EXPECT_EQ(report.status, Status::ok) << report.message;
  run.result = all[0].result;
  run.notes = all[0].notes;
  std::ifstream log(run.folder / kMetricsFile);
  for (std::string line; std::getline(log, line);) {
    const Json entry = Json::parse(line);
    if (entry.at("kind") == "train") run.losses.push_back(entry.at("loss").get<double>());
  }
  if (all[0].status == Status::ok) run.tensors = read(run.folder / kWeightsFile);
  if (fs::exists(run.folder / kPopulationsFile)) run.pairs = read(run.folder / kPopulationsFile);
  return run;
}

void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.count(name) > 0) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

void expect_near(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                 double bound) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.count(name) > 0) << name;
    ASSERT_EQ(tensor.sizes(), b.at(name).sizes()) << name;
    EXPECT_LE((tensor - b.at(name)).abs().max().item<double>(), bound) << name;
  }
}

std::map<std::string, at::Tensor> parameters_of(const TrainedRun& run) {
  return part(run, false);
}

std::map<std::string, at::Tensor> statistics_of(const TrainedRun& run) {
  return part(run, true);
}

}  // namespace bnlab
