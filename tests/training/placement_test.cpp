// Placement invariance: one spec as 4x1, 2x2 and 1x4 (ranks x towers per rank) gives the same losses, weights
// and running statistics, for every registered strategy and under every population. The ranks are threads of
// this process; in one test they are processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "harness/loopback_socket.hpp"
#include "harness/registry.hpp"
#include "harness/spec/spec.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> tensors;
  Json result;
};

std::map<std::string, std::vector<double>> read_float64_safetensors(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  in.read(header.data(), static_cast<std::streamsize>(length));
  std::map<std::string, std::vector<double>> tensors;
  const Json entries = Json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    EXPECT_EQ(entry.at("dtype"), "F64");
    const uint64_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    std::vector<double> values((end - begin) / sizeof(double));
    in.seekg(static_cast<std::streamoff>(8 + length + begin));
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
    tensors[name] = values;
  }
  return tensors;
}

class Placement : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("bnlab_placement_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  RunSpec spec(const std::string& strategy, const std::string& more = "") {
    const fs::path file = folder_ / "spec.json";
    std::ofstream(file)
        << R"({"question": "?", "task": {"name": "shapes", "size": [16, 16], "train": 24, "test": 11},
      "model": {"name": "unet", "base": 8, "levels": 2}, "precision": "float64", "steps": 5, "log_every": 1,
      "warmup_steps": 1, "populations": ["saved", "tower:3", "mean", "pooled", "precise", "batch"],
      "precise_batches": 2, "towers": 4, "batch_per_tower": 2,
      "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001}, "seed": 3, )"
        << more << "\"strategy\": " << strategy << "}";
    return load_experiment(file.string()).runs.at(0);
  }

  RankJob job(const RunSpec& spec, int rank, int ranks, const LoopbackSocket& socket) {
    RankJob job;
    job.spec = spec;
    job.rendezvous.rank = rank;
    job.rendezvous.size = ranks;
    job.rendezvous.port = socket.port();
    job.rendezvous.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
    job.run_dir = (folder_ / std::to_string(ranks)).string();
    fs::create_directories(job.run_dir);
    return job;
  }

  Outcome run(const RunSpec& spec, int ranks) {
    const LoopbackSocket socket;
    std::vector<RankReport> reports(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(
          [&, rank] { reports[static_cast<size_t>(rank)] = run_rank(job(spec, rank, ranks, socket)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const RankReport& report : reports) {
      EXPECT_EQ(report.status, "ok") << report.message;
    }
    return outcome(ranks, reports[0].result);
  }

  // To be called before this process has a second thread.
  Outcome run_in_processes(const RunSpec& spec, int ranks) {
    const LoopbackSocket socket;
    std::vector<::pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const RankJob mine = job(spec, rank, ranks, socket);
      children.push_back(::fork());
      if (children.back() == 0) {
        const RankReport report = run_rank(mine);
        std::ofstream(fs::path(mine.run_dir) / ("result" + std::to_string(rank))) << report.result.dump();
        ::_exit(report.status == "ok" ? 0 : 1);
      }
    }
    for (const ::pid_t child : children) {
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    std::ifstream result(folder_ / std::to_string(ranks) / "result0");
    return outcome(ranks, Json::parse(result));
  }

  Outcome outcome(int ranks, const Json& result) {
    const fs::path folder = folder_ / std::to_string(ranks);
    Outcome outcome;
    outcome.result = result;
    std::ifstream log(folder / "metrics.jsonl");
    for (std::string line; std::getline(log, line);) {
      const Json entry = Json::parse(line);
      if (entry.at("kind") == "train") {
        outcome.losses.push_back(entry.at("loss").get<double>());
      }
    }
    outcome.tensors = read_float64_safetensors(folder / "weights.safetensors");
    return outcome;
  }

  // Sums are taken in another order, and five steps with momentum let the differences grow.
  static void expect_same(const Outcome& a, const Outcome& b) {
    ASSERT_EQ(a.losses.size(), 5u);
    ASSERT_EQ(b.losses.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(a.losses[i], b.losses[i], 1e-10) << "step " << i;
    }
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [name, values] : a.tensors) {
      const std::vector<double>& others = b.tensors.at(name);
      ASSERT_EQ(values.size(), others.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], others[i], 1e-10) << name << "[" << i << "]";
      }
    }
    EXPECT_EQ(a.result.at("final"), b.result.at("final"));
  }

  fs::path folder_;
};

TEST_P(Placement, ChangesNothing) {
  const RunSpec s = spec(GetParam());
  const Outcome one = run(s, 1);
  EXPECT_GT(std::abs(one.losses.front() - one.losses.back()), 1e-3) << "nothing was learned";
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    expect_same(one, run(s, ranks));
  }
}

// Every strategy as it comes, and the variants that exchange something else.
std::vector<std::string> strategies() {
  std::vector<std::string> all;
  for (const std::string& name : registered_names("strategy")) {
    all.push_back("\"" + name + "\"");
  }
  for (const char* variant :
       {R"({"name": "sync", "group_size": 2, "route": "all_reduce"})",
        R"({"name": "sync", "gradient": "stopped", "route": "reduce_broadcast"})",
        R"({"name": "sync", "gradient": "own_tower", "route": "host"})",
        R"({"name": "sync", "variance": "averaged", "route": "gather_activations"})",
        R"({"name": "sync", "moments": "e_x2"})", R"({"name": "averaged", "merge": "pooled"})",
        R"({"name": "per_tower", "saved_tower": 2, "momentum": null})",
        R"({"name": "batch_renorm", "scope": "pooled", "r_max": 1.5, "d_max": 0.5})",
        R"({"name": "weight_norm", "mean_only_bn": true, "scope": "pooled"})",
        R"({"name": "frozen", "base": "shuffle", "from_fraction": 0.4})",
        R"({"name": "precise", "base": {"name": "ghost", "virtual_batch": 1}, "batches": 2})"}) {
    all.push_back(variant);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Placement, ::testing::ValuesIn(strategies()));

using PlacementOfSomeStrategies = Placement;

TEST_F(PlacementOfSomeStrategies, RanksThatAreProcessesDoWhatThreadsDo) {
  const RunSpec s = spec("\"shuffle\"");
  const Outcome processes = run_in_processes(s, 4);
  expect_same(processes, run(s, 1));
}

TEST_F(PlacementOfSomeStrategies, TheSameRunTwiceIsBitIdentical) {
  for (const char* strategy : {"per_tower", "sync", "shuffle", "weight_norm"}) {
    SCOPED_TRACE(strategy);
    const RunSpec s = spec("\"" + std::string(strategy) + "\"");
    const Outcome first = run(s, 2), second = run(s, 2);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.tensors, second.tensors);
  }
}

TEST_F(PlacementOfSomeStrategies, UnevenAndEmptyTowersAreInvariantToo) {
  for (const char* strategy : {"sync", "shuffle", "every_tower", "weight_norm"}) {
    SCOPED_TRACE(strategy);
    Json resolved = spec("\"" + std::string(strategy) + "\"").resolved;
    resolved["batch_per_tower"] = {3, 0, 2, 3};
    const RunSpec s = read_resolved(resolved);
    const Outcome one = run(s, 1);
    expect_same(one, run(s, 2));
    expect_same(one, run(s, 4));
  }
}

TEST_F(PlacementOfSomeStrategies, TheMeanOverTowersOfTheLossIsInvariantToo) {
  RunSpec s = spec("\"per_tower\"", R"("loss_mean": "tower", )");
  expect_same(run(s, 1), run(s, 2));
}

}  // namespace
}  // namespace bnlab
