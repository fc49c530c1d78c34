// Whole training steps (forward, loss, backward, SGD) of a U-Net with 8 towers in one process: every strategy
// of the BN family beside per_tower. Both sides alternate inside one benchmark; the counters are the medians
// of their times and the ratio strategy / per_tower.
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/models/model.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

constexpr int64_t kTowers = 8, kPerTower = 2, kHeight = 96, kWidth = 128, kClasses = 5;

class Training {
 public:
  explicit Training(const Json& strategy)
      : world_(join_world({}, at::kCPU)),
        strategy_(Registered<Strategy>::create(
            resolved_strategy(strategy),
            {.statistics = world_->statistics(), .host = world_->host(), .steps = 1000})),
        towers_(std::vector<int64_t>(kTowers, kPerTower), 1, 0) {
    network_ = Registered<Model>::create({{"name", "unet"}, {"base", 16}, {"levels", 3}}, {})
                   ->build(*strategy_, kClasses);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : network_->parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
    images_ = at::randn({kTowers * kPerTower, 3, kHeight, kWidth}).contiguous(at::MemoryFormat::ChannelsLast);
    labels_ = at::randint(kClasses, {kTowers * kPerTower, kHeight, kWidth}, at::kLong);
  }

  void step() {
    const at::Tensor outputs = strategy_->forward(*network_, images_, {towers_, 1, {index_++, 1000}}).logits;
    at::cross_entropy_loss(outputs, labels_).backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor p : network_->parameters()) {
      p.sub_(p.grad(), 0.01);
      p.mutable_grad() = at::Tensor();
    }
  }

 private:
  std::unique_ptr<World> world_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Network> network_;
  Towers towers_;
  at::Tensor images_, labels_;
  int64_t index_ = 0;
};

double timed_step(Training& training) {
  const auto begin = std::chrono::steady_clock::now();
  training.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void compare(benchmark::State& state, const Json& strategy) {
  Training ours(strategy), baseline("per_tower");
  for (int i = 0; i < 3; ++i) {
    ours.step();
    baseline.step();
  }
  std::vector<double> times, baseline_times;
  for ([[maybe_unused]] auto _ : state) {
    times.push_back(timed_step(ours));
    baseline_times.push_back(timed_step(baseline));
  }
  state.counters["step_ms"] = 1e3 * median(times);
  state.counters["per_tower_ms"] = 1e3 * median(baseline_times);
  state.counters["ratio"] = median(times) / median(baseline_times);
}

void register_all() {
  const std::vector<Json> strategies{"per_tower",
                                     "single_tower",
                                     "last_tower",
                                     "every_tower",
                                     "averaged",
                                     {{"name", "averaged"}, {"merge", "pooled"}},
                                     "sync",
                                     {{"name", "sync"}, {"route", "all_reduce"}},
                                     {{"name", "sync"}, {"gradient", "stopped"}},
                                     {{"name", "sync"}, {"gradient", "own_tower"}},
                                     {{"name", "sync"}, {"variance", "averaged"}},
                                     {{"name", "sync"}, {"moments", "e_x2"}},
                                     {{"name", "sync"}, {"group_size", 2}},
                                     "batch_renorm",
                                     {{"name", "batch_renorm"}, {"scope", "pooled"}},
                                     {{"name", "ghost"}, {"virtual_batch", 1}},
                                     "frozen",
                                     "shuffle",
                                     {{"name", "precise"}, {"base", "per_tower"}}};
  for (const Json& strategy : strategies) {
    const std::string name = strategy.is_string() ? strategy.get<std::string>() : strategy.dump();
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      compare(state, strategy);
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace bnlab

int main(int argc, char** argv) {
  bnlab::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
