// The BN family's layer under several of its strategies, forward and backward, with 8 towers in one process,
// beside LibTorch's batch_norm over the same batch. Both sides alternate inside one benchmark; the counters
// are the medians of their times and the ratio ours / LibTorch's. No activation on either side.
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/one_site.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

template <class Body>
double seconds(const Body& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void compare(benchmark::State& state, const Json& name, at::IntArrayRef shape, at::MemoryFormat format) {
  const auto world = join_world({}, at::kCPU);
  const auto strategy = Registered<Strategy>::create(
      resolved_strategy(name), {.statistics = world->statistics(), .host = world->host(), .steps = 100});
  OneSite network(strategy->norm({"site", shape[1], Activation::none}));
  const Towers towers(std::vector<int64_t>(8, shape[0] / 8), 1, 0);
  const at::Tensor x = (at::randn(shape) * 2 + 1).contiguous(format).requires_grad_(true);
  const at::Tensor dy = at::randn(shape).contiguous(format);
  const at::Tensor weight = at::ones({shape[1]}).requires_grad_(true),
                   bias = at::zeros({shape[1]}).requires_grad_(true);
  const at::Tensor mean = at::zeros({shape[1]}), var = at::ones({shape[1]});
  const auto ours = [&] {
    strategy->forward(network, x, {towers, 1, {}, Mode::train}).logits.backward(dy);
    x.mutable_grad() = at::Tensor();
  };
  const auto theirs = [&] {
    at::batch_norm(x, weight, bias, mean, var, true, 0.1, 1e-5, true).backward(dy);
    x.mutable_grad() = at::Tensor();
  };
  std::vector<double> our_times, their_times;
  for (int i = 0; i < 3; ++i) {
    ours();
    theirs();
  }
  for ([[maybe_unused]] auto _ : state) {
    our_times.push_back(seconds(ours));
    their_times.push_back(seconds(theirs));
  }
  state.counters["ours_us"] = 1e6 * median(our_times);
  state.counters["libtorch_us"] = 1e6 * median(their_times);
  state.counters["ratio"] = median(our_times) / median(their_times);
}

void register_all() {
  const std::vector<Json> strategies{"per_tower",
                                     "averaged",
                                     {{"name", "averaged"}, {"merge", "pooled"}},
                                     "sync",
                                     {{"name", "sync"}, {"variance", "averaged"}}};
  const std::vector<std::vector<int64_t>> shapes{
      {8, 16, 96, 128}, {16, 32, 48, 64}, {16, 64, 24, 32}, {32, 64, 128, 128}};
  for (const auto& shape : shapes) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (const Json& strategy : strategies) {
        std::string name = strategy.is_string() ? strategy.get<std::string>() : strategy.dump();
        for (const int64_t n : shape) name += "/" + std::to_string(n);
        name += format == at::MemoryFormat::Contiguous ? "/contiguous" : "/channels_last";
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          compare(state, strategy, shape, format);
        })->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace bnlab

int main(int argc, char** argv) {
  bnlab::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
