// A run that goes on from a checkpoint leaves what an undisturbed one leaves, to the bit; on other ranks, up
// to the order of sums. For every registered strategy and the options of training.
#include "harness/training/checkpoint.hpp"

#include <fstream>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/training/costs.hpp"
#include "harness/training/peak_memory.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// Lines without what depends on the clock.
std::vector<Json> log_of(const TrainedRun& run) {
  std::vector<Json> lines;
  std::ifstream log(run.folder / kMetricsFile);
  for (std::string line; std::getline(log, line);) {
    lines.push_back(Json::parse(line));
    EXPECT_EQ(lines.back().erase("time_s"), 1u);
  }
  return lines;
}

Json result_of(const TrainedRun& run) {
  Json result = run.result;
  for (const char* of_the_machine : {"start_s", "throughput", "memory", "resumed_at_steps"})
    result.erase(of_the_machine);
  return result;
}

void expect_same(const TrainedRun& a, const TrainedRun& b) {
  EXPECT_EQ(log_of(a), log_of(b));
  EXPECT_EQ(result_of(a), result_of(b));
  expect_equal(a.tensors, b.tensors);
  ASSERT_EQ(a.pairs.empty(), b.pairs.empty());
  if (!a.pairs.empty()) expect_equal(a.pairs, b.pairs);
}

class Checkpoint : public ::testing::TestWithParam<std::string> {
 protected:
  // 5 steps; the loss is reported and evaluated at other steps than checkpoints are kept at (2 and 4).
  static Json keys(const Json& more) {
    Json all = {{"log_every", 3}, {"eval_every", 3}};
    all.update(more);
    return all;
  }
  static RunSpec with_checkpoints(Json keys) {
    keys["checkpoint_every"] = 2;
    return TrainingRuns::spec(keys);
  }

  static std::vector<fs::path> checkpoints(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder / kCheckpointsFolder))
      files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }

  // A folder as a run leaves it that is cut short between this checkpoint and the next.
  fs::path cut_short(const TrainedRun& run, size_t checkpoint) {
    fs::path folder = runs_.new_folder();
    fs::copy(run.folder, folder, fs::copy_options::recursive);
    const std::vector<fs::path> files = checkpoints(folder);
    EXPECT_EQ(files.size(), 2u);
    for (size_t later = checkpoint + 1; later < files.size(); ++later) fs::remove(files[later]);
    fs::remove(folder / kWeightsFile);
    fs::remove(folder / kPopulationsFile);
    return folder;
  }

  void expect_goes_on(const Json& more, int ranks = 2, const std::vector<int>& other_ranks = {}) {
    const TrainedRun undisturbed = runs_.run(TrainingRuns::spec(keys(more)), ranks);
    const RunSpec spec = with_checkpoints(keys(more));
    const TrainedRun kept = runs_.run(spec, ranks);
    expect_same(undisturbed, kept);
    for (const size_t checkpoint : {0u, 1u}) {
      SCOPED_TRACE("checkpoint " + std::to_string(checkpoint));
      const TrainedRun resumed = runs_.run_in(cut_short(kept, checkpoint), spec, ranks);
      EXPECT_EQ(resumed.result.at("resumed_at_steps"), Json::array({2 + 2 * checkpoint}));
      expect_same(undisturbed, resumed);
    }
    for (const int others : other_ranks) {
      SCOPED_TRACE(std::to_string(others) + " ranks");
      const TrainedRun resumed = runs_.run_in(cut_short(kept, 0), spec, others);
      expect_near(undisturbed.tensors, resumed.tensors, 1e-10);
      if (!undisturbed.pairs.empty()) expect_near(undisturbed.pairs, resumed.pairs, 1e-10);
      EXPECT_NEAR(undisturbed.losses.back(), resumed.losses.back(), 1e-10);
      EXPECT_EQ(undisturbed.result.at("final"), resumed.result.at("final"));
    }
  }

  TrainingRuns runs_;
};

TEST_P(Checkpoint, TheRunGoesOnToTheBit) {
  expect_goes_on({{"strategy", GetParam()},
                  {"weight_ema", 0.5},
                  {"populations", {"saved", "tower:3", "mean", "pooled", "precise", "batch"}},
                  {"precise_batches", 1}},
                 2, {1, 4});
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Checkpoint, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

using CheckpointOfOptions = Checkpoint;

TEST_F(CheckpointOfOptions, VariantsOfStrategiesGoOnToo) {
  for (const char* variant :
       {R"({"name": "per_tower", "saved_tower": 2, "momentum": null})",
        R"({"name": "averaged", "merge": "pooled"})",
        R"({"name": "batch_renorm", "scope": "pooled", "schedule": {"end_step": 5}})",
        R"({"name": "weight_norm", "mean_only_bn": true})", R"({"name": "norm_batch", "samples": 1})",
        R"({"name": "weight_standardisation", "base": "averaged"})",
        R"({"name": "mabn", "window": 2, "warmup_steps": 0, "renorm_from_step": 1})",
        R"({"name": "per_tower", "running_variance": "biased"})",
        R"({"name": "frozen", "base": "shuffle", "from_step": 1})",
        R"({"name": "frozen", "base": "averaged", "from_step": 3, "train_affine": true})",
        R"({"name": "precise", "base": {"name": "ghost", "virtual_batch": 1}, "batches": 1})"}) {
    SCOPED_TRACE(variant);
    expect_goes_on({{"strategy", Json::parse(variant)}}, 2, {1});
  }
}

TEST_F(CheckpointOfOptions, OptionsOfTrainingGoOnToo) {
  for (
      const char* options :
      {R"({"optimizer": {"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.5}})",
       R"({"optimizer": {"name": "adamw"}, "strategy": {"name": "frozen", "base": "sync", "from_step": 1}})",
       R"({"optimizer": {"name": "sgd", "lr": 0.1, "nesterov": true, "schedule": "cosine", "warmup_steps": 3}})",
       R"({"precision": "float32", "data_workers": 2})", R"({"precision": "bfloat16", "weight_ema": 0.9})",
       R"({"precision": "float16", "loss_scaling": {"start": 1e12, "backoff": 1e-4, "interval": 2}})",
       R"({"precision": "float16", "loss_scaling": {"start": 1024, "interval": 4}})",
       R"({"batch_per_tower": [3, 0, 2, 3], "shards": "sorted:class"})",
       R"({"strategy": {"name": "cmbn", "momentum": null}, "accumulate": 2, "statistics_per": "step"})",
       R"({"gradient_route": "rank0", "loss_mean": "tower"})", R"({"log_every": 100, "eval_every": 0})",
       R"({"model": {"name": "fcn", "backbone": {"name": "resnet", "width": 2}, "dropout": 0.5}})"}) {
    SCOPED_TRACE(options);
    expect_goes_on(Json::parse(options));
  }
}

TEST_F(CheckpointOfOptions, RanksThatTrainApartGoOnToo) {
  for (const char* strategy : {"per_tower", "last_tower", "averaged"}) {
    SCOPED_TRACE(strategy);
    expect_goes_on({{"strategy", strategy}, {"towers", 2}, {"average_weights_every", 3}});
  }
}

// Windows of 3 steps, each of which a checkpoint cuts; the run ends after the second one.
TEST_F(CheckpointOfOptions, ARunThatStopsEarlyStopsAtTheSameStep) {
  const Json keys = {{"steps", 9},
                     {"stop_early", {{"every", 3}, {"chance_after", 4}, {"chance_above", 1e-3}}}};
  EXPECT_EQ(runs_.run(TrainingRuns::spec(keys), 1).result.at("stopped_early").at("step"), 6);
  expect_goes_on(keys, 2, {1});
}

// The best evaluation lies before the checkpoints, between them or behind, by the strategy.
TEST_P(Checkpoint, ARunThatSelectsItsWeightsGoesOnToo) {
  expect_goes_on({{"strategy", GetParam()},
                  {"eval_every", 1},
                  {"weight_ema", 0.5},
                  {"populations", {"saved", "tower:3", "mean"}},
                  {"select", {{"validation_share", 0.3}}}},
                 2, {1, 4});
}

TEST_F(CheckpointOfOptions, RanksThatTrainApartSelectTheirWeights) {
  expect_goes_on({{"strategy", "per_tower"},
                  {"towers", 2},
                  {"average_weights_every", 3},
                  {"select", {{"validation_share", 0.3}}}});
}

TEST_F(CheckpointOfOptions, ARunGoesOnMoreThanOnce) {
  const Json plain = keys({{"steps", 7}});
  const TrainedRun undisturbed = runs_.run(TrainingRuns::spec(plain), 2);
  const TrainedRun once = runs_.run(with_checkpoints(plain), 2);
  const TrainedRun twice = runs_.run_in(cut_short(once, 0), with_checkpoints(plain), 2);
  const TrainedRun thrice = runs_.run_in(cut_short(twice, 1), with_checkpoints(plain), 2);
  EXPECT_EQ(thrice.result.at("resumed_at_steps"), Json::array({4, 6}));
  expect_same(undisturbed, thrice);
}

TEST_F(CheckpointOfOptions, TheThroughputIsThatOfTheStepsSinceThen) {
  const RunSpec spec = with_checkpoints(keys(Json::object()));
  const TrainedRun resumed = runs_.run_in(cut_short(runs_.run(spec, 1), 0), spec, 1);
  EXPECT_EQ(resumed.result.at("throughput").at("steps_measured"), 2);  // of steps 3 to 5 one warms up
}

// What a run remembers: tensors that all ranks have alike, and some of each rank's own.
struct Remembered {
  std::vector<at::Tensor> same, own;

  Remembered(int tensors, int64_t size, double value) {
    for (int i = 0; i < tensors; ++i) {
      same.push_back(at::full({size}, value, at::kDouble));
      own.push_back(at::full({2}, value, at::kDouble));
    }
  }
  void describe(State& state) {
    int64_t log_bytes = 0;
    state.value("metrics.bytes", log_bytes);
    for (size_t i = 0; i < same.size(); ++i) {
      state.tensor("same" + std::to_string(i), same[i]);
      state.tensor("own" + std::to_string(i), own[i], Across::own);
    }
  }
};

class CheckpointOfTensors : public Checkpoint {
 protected:
  CheckpointOfTensors()
      : spec_(with_checkpoints(keys(Json::object()))), folder_(runs_.new_folder().string()) {
    std::ofstream(folder_ + "/" + kMetricsFile) << "{}\n";
  }

  void save(World& world, Remembered& remembered) {
    Checkpoints checkpoints(spec_, nullptr, folder_, world);
    EXPECT_FALSE(checkpoints.found());
    checkpoints.save(2, [&](State& state) { remembered.describe(state); });
    world.barrier();
  }
  void restore(World& world, Remembered& remembered) {
    Checkpoints checkpoints(spec_, nullptr, folder_, world);
    ASSERT_TRUE(checkpoints.found());
    checkpoints.restore([&](State& state) { remembered.describe(state); });
  }

  RunSpec spec_;
  std::string folder_;
};

TEST_F(CheckpointOfTensors, ARankHoldsOneTensorAtATimeWhileItRestores) {
  account_cpu_memory();
  constexpr int kTensors = 24;
  constexpr int64_t kBytes = 1 << 20;  // of each
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    {
      Remembered left(kTensors, kBytes / 8, world.rank() + 1);
      save(world, left);
    }
    Remembered here(kTensors, kBytes / 8, 0);
    Costs costs(world);
    world.barrier();
    costs.begin(0);
    const int64_t before = costs.memory().at("peak_memory_bytes")[0];
    restore(world, here);
    EXPECT_LT(costs.memory().at("peak_memory_bytes")[0].get<int64_t>(), before + 6 * kBytes);
    EXPECT_EQ(here.same.back()[0].item<double>(), 1);  // rank 0's
    EXPECT_EQ(here.own.back()[1].item<double>(), world.rank() + 1);
  });
}

TEST_F(CheckpointOfTensors, MayHoldMoreThanTheRunAsksForButNotLess) {
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    Remembered left(2, 3, 7), fewer(1, 3, 0), more(3, 3, 0), longer(2, 4, 0);
    save(world, left);
    restore(world, fewer);
    EXPECT_EQ(fewer.same[0][2].item<double>(), 7);
    const auto refusal = [&](Remembered& remembered) {
      try {
        restore(world, remembered);
        return std::string("none");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), Error::Kind::data);
        return std::string(error.what());
      }
    };
    EXPECT_EQ(refusal(more), "the checkpoint lacks same2");
    EXPECT_EQ(refusal(longer), "the checkpoint holds same0 of another shape or type");
  });
}

// Of four towers, tower t holds the number t.
TEST_F(CheckpointOfTensors, WhatBelongsToTowersGoesWithThemToOtherRanks) {
  const auto numbers = [](World& world) {
    const int64_t towers = 4 / world.size();
    return at::arange(world.rank() * towers, (world.rank() + 1) * towers, at::kDouble)
        .view({towers, 1})
        .expand({towers, 3});
  };
  const auto describe = [](const at::Tensor& tensor) {
    return [tensor](State& state) {
      int64_t log_bytes = 0;
      state.value("metrics.bytes", log_bytes);
      state.tensor("towers", tensor, Across::towers);
    };
  };
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    Checkpoints(spec_, nullptr, folder_, world).save(2, describe(numbers(world)));
    world.barrier();
  });
  for (const int ranks : {1, 2, 4}) {
    on_thread_ranks(ranks, at::kCPU, [&](World& world) {
      const at::Tensor restored = at::zeros({4 / ranks, 3}, at::kDouble);
      Checkpoints(spec_, nullptr, folder_, world).restore(describe(restored));
      EXPECT_TRUE(at::equal(restored, numbers(world))) << ranks << " ranks, rank " << world.rank();
    });
  }
}

class DamagedCheckpoint : public Checkpoint {
 protected:
  DamagedCheckpoint()
      : spec_(with_checkpoints(keys(Json::object()))),
        run_(runs_.run(spec_, 2)),
        folder_(cut_short(run_, 1)) {}

  void expect_goes_on_from(int step) {
    const TrainedRun resumed = runs_.run_in(folder_, spec_, 2);
    EXPECT_EQ(resumed.result.value("resumed_at_steps", Json::array()),
              step == 0 ? Json::array() : Json::array({step}));
    EXPECT_EQ(resumed.notes.empty(), step == 4);
    expect_same(run_, resumed);
    EXPECT_EQ(checkpoints(folder_).size(), 2u);
  }

  std::string refusal(const Json& more) {
    const RankReport report = runs_.reports(with_checkpoints(keys(more)), 2, folder_).at(1);
    EXPECT_EQ(report.status, Status::error);
    return report.message;
  }

  RunSpec spec_;
  TrainedRun run_;
  fs::path folder_;
};

TEST_F(DamagedCheckpoint, GivesWayToTheOneBefore) {
  const fs::path newest = checkpoints(folder_).back();
  fs::resize_file(newest, fs::file_size(newest) / 2);
  expect_goes_on_from(2);
}

// Every byte of the header and of the end, and many between.
TEST_F(DamagedCheckpoint, IsFoundWhereverItWasCut) {
  const fs::path newest = checkpoints(folder_).back();
  const size_t whole = fs::file_size(newest);
  const auto world = join_world({}, at::kCPU);
  const auto found = [&] { return Checkpoints(spec_, nullptr, folder_, *world).found(); };
  fs::remove(checkpoints(folder_).front());
  ASSERT_TRUE(found());
  constexpr size_t kEdge = 4096, kStride = 101;
  for (size_t length = whole; length > 0;) {
    length -= length <= kEdge || length + kEdge > whole ? 1 : kStride;
    fs::resize_file(newest, length);
    ASSERT_FALSE(found()) << "cut at byte " << length << " of " << whole;
  }
}

TEST_F(DamagedCheckpoint, IsFoundByASingleWrongBit) {
  const fs::path newest = checkpoints(folder_).back();
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-9, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-9, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  expect_goes_on_from(2);
}

TEST_F(DamagedCheckpoint, WithoutAnotherTheRunStartsFromTheBeginning) {
  for (const fs::path& file : checkpoints(folder_)) fs::resize_file(file, 0);
  std::ofstream(folder_ / kCheckpointsFolder / ".step4.tmp") << "cut short while it was written";
  expect_goes_on_from(0);
}

TEST_F(DamagedCheckpoint, NeedsTheLinesBeforeIt) {
  fs::resize_file(folder_ / kMetricsFile, 10);
  expect_goes_on_from(0);
}

TEST_F(DamagedCheckpoint, OfAnotherSpecIsRefusedWithTheKeysThatDiffer) {
  const std::string message = refusal({{"seed", 4}});
  EXPECT_NE(message.find("belongs to another run: spec.seed is 3 there and 4 here; go on with"),
            std::string::npos)
      << message;
  EXPECT_EQ(checkpoints(folder_).size(), 2u);
}

TEST_F(DamagedCheckpoint, KeysThatChangeNoResultMayDiffer) {
  Json more = keys({{"timeout_s", 100}, {"checkpoint_every", 3}});
  const TrainedRun resumed = runs_.run_in(folder_, TrainingRuns::spec(more), 2);
  EXPECT_EQ(resumed.result.at("resumed_at_steps"), Json::array({4}));
}

}  // namespace
}  // namespace bnlab
