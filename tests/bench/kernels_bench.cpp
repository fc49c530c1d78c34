// BN + ReLU, forward and backward, float32: these kernels against LibTorch's native_batch_norm, relu_ and
// their backward operators, side by side, with the copy bandwidth of the same moment.
// Counters: ours_ms and eager_ms are medians of interleaved rounds, ratio is ours / eager (below 1 is
// faster), copy_GBps counts bytes read and written, ours_GBps is the 8 N bytes that our kernels move by their
// time. `hot` repeats on the same tensors; `cold` goes round so many sets that the caches hold none of them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <vector>

#include "strategies/kernels/kernels.hpp"

namespace {

using at::Tensor;
namespace kernels = bnlab::kernels;

constexpr double kEps = 1e-5;

struct Site {
  Tensor x, dy, copy, gamma, beta;
};

struct Result {
  Tensor y, dx, gamma_grad, beta_grad;
};

Site make_site(at::IntArrayRef shape, bool channels_last) {
  const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const Tensor x = at::randn(shape).contiguous(format);
  return {x, at::randn(shape).contiguous(format), at::zeros_like(x), at::randn(shape[1]),
          at::randn(shape[1])};
}

Result ours(const Site& site) {
  using bnlab::Activation;
  const kernels::Offsets offsets = {0, site.x.size(0)};
  const int64_t channels = site.x.size(1);
  const double count = static_cast<double>(site.x.numel() / channels);
  const Tensor packed = kernels::moments(site.x, offsets);
  const Tensor mean = packed.slice(1, 1, 1 + channels).to(at::kFloat);
  const Tensor invstd = (packed.slice(1, 1 + channels) / count + kEps).rsqrt_().to(at::kFloat);
  const Tensor scale = invstd * site.gamma;
  const kernels::FromInput from_input{scale, site.beta.unsqueeze(0)};
  const Tensor y = kernels::normalise(site.x, offsets, mean, scale, from_input.shift, Activation::relu, {});
  const Tensor sums = kernels::backward_sums(site.dy, site.x, y, offsets, mean, Activation::relu, from_input);
  const Tensor sum_g = sums.select(1, 0), sum_gx = sums.select(1, 1);
  const Tensor b = scale * invstd * invstd * sum_gx / -count;
  const Tensor dx = kernels::backward_input(site.dy, site.x, y, offsets, mean, scale, b,
                                            scale * sum_g / -count, Activation::relu, from_input);
  return {y, dx, (sum_gx * invstd)[0], sum_g[0]};
}

Result eager(const Site& site) {
  auto [y, mean, invstd] = at::native_batch_norm(site.x, site.gamma, site.beta, {}, {}, true, 0.1, kEps);
  y.relu_();
  const Tensor g = at::threshold_backward(site.dy, y, 0);
  auto [dx, gamma_grad, beta_grad] = at::native_batch_norm_backward(g, site.x, site.gamma, {}, {}, mean,
                                                                    invstd, true, kEps, {true, true, true});
  return {y, dx, gamma_grad, beta_grad};
}

template <class F>
double time_ms(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Where y is zero but for rounding, one side may let a gradient pass and the other not. So single elements
// may differ, and with them the parameter gradients of their channels.
bool agree(const Result& a, const Result& b) {
  const auto share = [](const Tensor& left, const Tensor& right, double tolerance) {
    return at::isclose(left, right, tolerance, tolerance).to(at::kDouble).mean().item<double>();
  };
  return share(a.y, b.y, 1e-4) == 1 && share(a.dx, b.dx, 1e-3) > 0.9999 &&
         share(a.gamma_grad, b.gamma_grad, 1e-2) > 0.9 && share(a.beta_grad, b.beta_grad, 1e-2) > 0.9;
}

void batch_norm_relu(benchmark::State& state, const std::vector<int64_t>& shape) {
  const bool channels_last = state.range(0) != 0, cold = state.range(2) != 0;
  at::set_num_threads(static_cast<int>(state.range(1)));
  std::vector<Site> sites = {make_site(shape, channels_last)};
  const int64_t bytes = sites[0].x.numel() * 4;
  while (cold && static_cast<int64_t>(sites.size()) * bytes < (int64_t{128} << 20))
    sites.push_back(make_site(shape, channels_last));
  if (!agree(ours(sites[0]), eager(sites[0]))) {
    state.SkipWithError("our kernels and LibTorch's disagree");
    return;
  }
  std::vector<double> ours_ms, eager_ms, copy_ms;
  size_t round = 0;
  for (auto _ : state) {
    const Site& site = sites[round % sites.size()];
    const bool ours_first = round++ / sites.size() % 2 == 0;
    if (ours_first) ours_ms.push_back(time_ms([&] { benchmark::DoNotOptimize(ours(site)); }));
    eager_ms.push_back(time_ms([&] { benchmark::DoNotOptimize(eager(site)); }));
    if (!ours_first) ours_ms.push_back(time_ms([&] { benchmark::DoNotOptimize(ours(site)); }));
    copy_ms.push_back(time_ms([&] { Tensor(site.copy).copy_(site.x); }));
  }
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  state.counters["ours_ms"] = median(ours_ms);
  state.counters["eager_ms"] = median(eager_ms);
  state.counters["ratio"] = median(ours_ms) / median(eager_ms);
  state.counters["copy_GBps"] = 2 * gigabytes / (median(copy_ms) * 1e-3);
  state.counters["ours_GBps"] = 8 * gigabytes / (median(ours_ms) * 1e-3);
}

const auto kArguments = [](benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"channels_last", "threads", "cold"})->ArgsProduct({{0, 1}, {1, 2}, {0, 1}});
  bench->Unit(benchmark::kMillisecond)->UseRealTime();
};
BENCHMARK_CAPTURE(batch_norm_relu, 2x16x96x128, std::vector<int64_t>{2, 16, 96, 128})->Apply(kArguments);
BENCHMARK_CAPTURE(batch_norm_relu, 2x64x96x128, std::vector<int64_t>{2, 64, 96, 128})->Apply(kArguments);
BENCHMARK_CAPTURE(batch_norm_relu, 8x64x96x128, std::vector<int64_t>{8, 64, 96, 128})->Apply(kArguments);
BENCHMARK_CAPTURE(batch_norm_relu, 16x32x48x64, std::vector<int64_t>{16, 32, 48, 64})->Apply(kArguments);
BENCHMARK_CAPTURE(batch_norm_relu, 8x256x24x32, std::vector<int64_t>{8, 256, 24, 32})->Apply(kArguments);

}  // namespace

int main(int argc, char** argv) {
  // Freed memory stays with the process, since page faults would take longer than either side.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
