// Placement invariance: one spec as 4x1, 2x2 and 1x4 (ranks x towers per rank) gives the same losses, weights
// and running statistics, for every registered strategy. The ranks are threads of this process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "harness/launch/loopback_socket.hpp"
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
      "warmup_steps": 1, "populations": ["saved", "batch"], "towers": 4, "batch_per_tower": 2,
      "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001}, "seed": 3, )"
        << more << "\"strategy\": " << strategy << "}";
    return load_experiment(file.string()).runs.at(0);
  }

  Outcome run(const RunSpec& spec, int ranks) {
    const fs::path folder = folder_ / std::to_string(ranks);
    fs::create_directories(folder);
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
        job.rendezvous.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
        job.run_dir = folder.string();
        reports[static_cast<size_t>(rank)] = run_rank(job);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const RankReport& report : reports) {
      EXPECT_EQ(report.status, "ok") << report.message;
    }
    Outcome outcome;
    outcome.result = reports[0].result;
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

TEST_P(Placement, TheSameRunTwiceIsBitIdentical) {
  const RunSpec s = spec(GetParam());
  const Outcome first = run(s, 2), second = run(s, 2);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.tensors, second.tensors);
}

std::vector<std::string> strategies() {
  std::vector<std::string> all;
  for (const std::string& name : registered_names("strategy")) {
    all.push_back("\"" + name + "\"");
  }
  for (const char* variant :
       {R"({"name": "sync", "group_size": 2})", R"({"name": "sync", "gradient": "stopped"})",
        R"({"name": "sync", "gradient": "own_tower"})", R"({"name": "sync", "variance": "averaged"})",
        R"({"name": "averaged", "merge": "pooled"})",
        R"({"name": "per_tower", "saved_tower": 2, "momentum": null})"}) {
    all.push_back(variant);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Placement, ::testing::ValuesIn(strategies()));

using PlacementOfUnequalTowers = Placement;

TEST_F(PlacementOfUnequalTowers, UnevenAndEmptyTowersAreInvariantToo) {
  RunSpec s = spec("\"sync\"");
  Json resolved = s.resolved;
  resolved["batch_per_tower"] = {3, 0, 2, 3};
  s = read_resolved(resolved);
  const Outcome one = run(s, 1);
  expect_same(one, run(s, 2));
  expect_same(one, run(s, 4));
}

TEST_F(PlacementOfUnequalTowers, TheMeanOverTowersOfTheLossIsInvariantToo) {
  RunSpec s = spec("\"per_tower\"", R"("loss_mean": "tower", )");
  expect_same(run(s, 1), run(s, 2));
}

}  // namespace
}  // namespace bnlab
