#include "harness/probe/sites.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "harness/built_network.hpp"
#include "harness/communicator/counting_world.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/one_site.hpp"
#include "harness/probe/turns.hpp"
#include "harness/support/error.hpp"
#include "harness/support/tf32.hpp"

namespace bnlab {
namespace {

constexpr const char* kRoute = "route";  // the option by which a strategy offers its routes
constexpr std::array<int64_t, 3> kChannels{16, 256, 2048};  // a first, a middle and a last site
constexpr int64_t kRows = 2, kSmallSide = 4, kLargeSide = 128, kLargeChannels = 64;
constexpr int64_t kLargeSideOfGpus = 512;  // 128 MiB: more than caches hold, and longer than a launch
constexpr int kLaunches = 200;

// Bytes that the sweeps of norm and ReLU move, in tensors of the size of x: forward reads x for the moments,
// reads it again and writes y; backward reads dy, x and y's sign twice where it sums, then writes dx.
constexpr double kForwardTensors = 3, kBackwardTensors = 5;

// The strategies that let a spec choose the route of their statistics, with each route.
std::vector<Json> routed_strategies() {
  std::vector<Json> found;
  for (const auto& [name, about] : registered(Strategy::kFamily)) {
    for (const Parameter& parameter : about.parameters()) {
      if (parameter.name != kRoute) continue;
      for (const std::string& route : parameter.choices) {
        Problems problems;
        const Json given{{Strategy::kFamily, {{"name", name}, {kRoute, route}}}};
        const Json resolved = resolve({component_key(Strategy::kFamily)}, given, "", problems);
        if (problems.empty()) found.push_back(resolved.at(Strategy::kFamily));
      }
    }
  }
  return found;
}

// Forward and backward passes of one site in a world.
class SiteSteps {
 public:
  SiteSteps(const Json& strategy, World& world, int64_t channels, int64_t side)
      : world_(world),
        towers_(std::vector<int64_t>(static_cast<size_t>(world.size()), kRows), world.size(), world.rank()),
        built_(strategy,
               {.statistics = world.statistics(),
                .host = world.host(),
                .device = world.device(),
                .steps = kSteps,
                .samples_per_tower = towers_.all_samples()},
               [channels](LayerMaker& layers) {
                 return std::make_shared<OneSite>(
                     layers.norm({.name = "norm", .channels = channels, .activation = Activation::relu}));
               }) {
    for (at::Tensor& parameter : built_.network().parameters())
      parameter.set_data(parameter.to(world.device()));
    for (auto& [name, buffer] : built_.network().named_buffers().pairs())
      buffer.set_data(buffer.to(world.device()));
    batch_.images = at::randn({kRows, channels, side, side}, at::TensorOptions().device(world.device()))
                        .contiguous(at::MemoryFormat::ChannelsLast)
                        .requires_grad_(true);
    batch_.towers = towers_;
    dy_ = at::ones_like(batch_.images);
  }

  double forward_s() {
    return seconds_of(world_.device(),
                      [this] { y_ = built_.forward(batch_, {step_++, kSteps}, Mode::train).logits; });
  }
  double backward_s() {
    return seconds_of(world_.device(), [this] { torch::autograd::grad({y_}, {batch_.images}, {dy_}); });
  }
  int64_t bytes() const { return static_cast<int64_t>(batch_.images.nbytes()); }

 private:
  static constexpr int64_t kSteps = 1'000'000;

  World& world_;
  Towers towers_;
  BuiltNetwork built_;
  Batch batch_;
  at::Tensor dy_, y_;
  int64_t step_ = 0;
};

double median_of(int64_t times, const std::function<double()>& once) {
  std::vector<double> samples;
  for (int64_t i = 0; i < times; ++i) samples.push_back(once());
  return quantile(samples, 0.5);
}

double mean_over_ranks(double own, World& world) {
  return over_ranks({own}, world.device(), world.gradients()).mean.front();
}

// Of work so small that launching it is all that it costs.
double launch_seconds(at::Device device) {
  at::Tensor one = at::zeros({1}, at::TensorOptions().device(device));
  one.add_(1);  // the first of a kind loads its kernel
  wait_for_device(device);
  const double start = seconds_now();
  for (int i = 0; i < kLaunches; ++i) one.add_(1);
  const double seconds = (seconds_now() - start) / kLaunches;
  wait_for_device(device);
  return seconds;
}

struct Work {
  double amount;  // operations or bytes
  std::function<void()> once;
};

// The most of it that was seen to be made per second: by the median of each kind, as the mean over the ranks.
// A kind that would take longer than there is time is left out.
double highest_rate(World& world, double seconds, const std::vector<Work>& kinds) {
  double highest = 0;
  for (const Work& work : kinds) {
    if (highest > 0 && work.amount / highest > seconds) continue;
    const auto time = [&] { return seconds_of(world.device(), work.once); };
    time();
    const double share = seconds / static_cast<double>(kinds.size());
    const int64_t times = agreed(repeats_within(share, time(), 3, 1000), world.device(), world.gradients());
    highest = std::max(highest, work.amount / mean_over_ranks(median_of(times, time), world));
  }
  return highest;
}

Work product(int64_t side, const at::TensorOptions& options) {
  const at::Tensor a = at::ones({side, side}, options), b = at::ones({side, side}, options);
  const double flops = 2 * std::pow(side, 3);
  return {flops, [a, b, c = at::empty({side, side}, options)]() mutable { at::mm_out(c, a, b); }};
}

Work convolution(int64_t channels, const at::TensorOptions& options) {
  constexpr int64_t kSide = 32, kTaps = 9;
  const at::Tensor
      x = at::ones({kRows, channels, kSide, kSide}, options).contiguous(at::MemoryFormat::ChannelsLast),
      w = at::ones({channels, channels, 3, 3}, options).contiguous(at::MemoryFormat::ChannelsLast);
  const auto flops = static_cast<double>(2 * kRows * kSide * kSide * kTaps * channels * channels);
  return {flops, [x, w] { at::conv2d(x, w, {}, 1, 1); }};
}

// Floating-point operations per second of products and convolutions, by what their factors are rounded to.
Json product_rates(World& world, double seconds) {
  const bool cuda = world.device().is_cuda();
  struct Factors {
    const char* name;
    at::ScalarType dtype;
    bool tf32;
  };
  std::vector<Factors> all{{"float32", at::kFloat, false}, {"bfloat16", at::kBFloat16, false}};
  if (cuda) all.insert(all.end(), {{"tf32", at::kFloat, true}, {"float16", at::kHalf, false}});
  Json rates = Json::object();
  for (const Factors& factors : all) {
    allow_tf32(factors.tf32);
    const auto options = at::TensorOptions().device(world.device()).dtype(factors.dtype);
    std::vector<Work> kinds;
    for (const int64_t side : cuda ? std::vector<int64_t>{1024, 4096} : std::vector<int64_t>{256, 768})
      kinds.push_back(product(side, options));
    for (const int64_t channels : cuda ? std::vector<int64_t>{256, 1024} : std::vector<int64_t>{16, 64, 256})
      kinds.push_back(convolution(channels, options));
    rates[factors.name] = highest_rate(world, seconds / static_cast<double>(all.size()), kinds);
  }
  allow_tf32(false);
  return rates;
}

// Bytes per second, read and written, of copies that lie in caches as of those that do not.
double fastest_copy(World& world, double seconds) {
  std::vector<Work> kinds;
  for (const int64_t bytes : {64 << 10, 512 << 10, 4 << 20, 32 << 20}) {
    const at::Tensor from = at::zeros({bytes / 4}, at::TensorOptions().device(world.device()));
    kinds.push_back(
        {2.0 * static_cast<double>(bytes), [from, to = at::empty_like(from)]() mutable { to.copy_(from); }});
  }
  return highest_rate(world, seconds, kinds);
}

}  // namespace

Json measure_kernels(World& world, double seconds) {
  const at::Device device = world.device();
  const std::vector<Json> strategies = routed_strategies();
  if (strategies.empty()) return nullptr;
  // Without other ranks a site that pools statistics does the sweeps and the merging alone.
  CountingWorld alone(1, device);
  SiteSteps site(strategies.front(), alone, kLargeChannels, device.is_cuda() ? kLargeSideOfGpus : kLargeSide);
  at::Tensor from = at::randn({site.bytes() / 4}, at::TensorOptions().device(device)),
             to = at::empty_like(from);
  const auto copy = [&] { return seconds_of(device, [&] { to.copy_(from); }); };
  std::vector<double> forward, backward, copied;
  for (int i = 0; i < 2; ++i) forward = {site.forward_s()}, backward = {site.backward_s()}, copied = {copy()};
  const double once = forward[0] + backward[0] + copied[0];
  const int64_t rounds = agreed(repeats_within(seconds / 2, once, 5, 200), device, world.gradients());
  forward.clear(), backward.clear(), copied.clear();
  for (int64_t i = 0; i < rounds; ++i) {
    copied.push_back(copy());
    forward.push_back(site.forward_s());
    backward.push_back(site.backward_s());
  }
  const auto rate = [&](double tensors, const std::vector<double>& samples) {
    return tensors * static_cast<double>(site.bytes()) / mean_over_ranks(quantile(samples, 0.5), world);
  };
  return {{"tensor_bytes", site.bytes()},
          {"copy_bytes_per_s", rate(2, copied)},
          {"norm_forward_bytes_per_s", rate(kForwardTensors, forward)},
          {"norm_backward_bytes_per_s", rate(kBackwardTensors, backward)},
          {"launch_s", mean_over_ranks(launch_seconds(device), world)},
          {"product_flops_per_s", product_rates(world, seconds / 4)},
          {"fastest_copy_bytes_per_s", fastest_copy(world, seconds / 4)}};
}

Json measure_routes(World& world, const std::string& exchange, double seconds) {
  const std::vector<Json> strategies = routed_strategies();
  const double share =
      seconds / static_cast<double>(std::max<size_t>(strategies.size() * kChannels.size(), 1));
  Json rows = Json::array();
  for (const Json& strategy : strategies) {
    for (const int64_t channels : kChannels) {
      CountingWorld without_others(world.size(), world.device());
      SiteSteps alone(strategy, without_others, channels, kSmallSide);
      SiteSteps together(strategy, world, channels, kSmallSide);
      const auto pass = [](SiteSteps& site) { return site.forward_s() + site.backward_s(); };
      for (int i = 0; i < 3; ++i) pass(alone), pass(together);
      const double once = pass(alone) + pass(together);
      const int64_t times = agreed(repeats_within(share, once, 5, 300), world.device(), world.gradients());
      const double own = mean_over_ranks(median_of(times, [&] { return pass(alone); }), world);
      const double all = mean_over_ranks(median_of(times, [&] { return pass(together); }), world);
      rows.push_back({{"exchange", exchange},
                      {"strategy", label(strategy)},
                      {"channels", channels},
                      {"alone_s", own},
                      {"together_s", all},
                      {"exchange_s", std::max(all - own, 0.0)}});
    }
  }
  return rows;
}

std::string exchanges_of_a_site(const Json& strategy, int64_t channels, int64_t side, int ranks) {
  CountingWorld world(ranks, at::kCPU);
  world.ledger().keep_list(true);
  try {
    SiteSteps site(strategy, world, channels, side);
    site.forward_s();
    site.backward_s();
  } catch (const Error& error) {
    return error.what();
  }
  std::string text;
  for (const Collective& each : world.ledger().list())
    text += each.op + " " + std::to_string(each.bytes) + "\n";
  return text;
}

}  // namespace bnlab
