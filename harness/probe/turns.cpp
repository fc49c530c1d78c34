#include "harness/probe/turns.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bnlab {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(at::Device device, const std::function<void()>& work) {
  if (device.is_cpu()) {
    const double start = seconds_now();
    work();
    return seconds_now() - start;
  }
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end) * 1e-3;
}

void wait_for_device(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

int64_t agreed(int64_t own, at::Device device, Communicator& communicator) {
  at::Tensor number = at::full({1}, own, at::TensorOptions().dtype(at::kLong).device(device));
  communicator.broadcast(number, 0, Purpose::control);
  return number.item<int64_t>();
}

int64_t repeats_within(double seconds, double once, int64_t fewest, int64_t most) {
  return std::clamp(static_cast<int64_t>(seconds / std::max(once, 1e-9)), fewest, most);
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Json spread_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  return {
      {"samples", samples.size()},
      {"mean", std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size())},
      {"p10", quantile(samples, 0.1)},
      {"p50", quantile(samples, 0.5)},
      {"p90", quantile(samples, 0.9)},
      {"p95", quantile(samples, 0.95)},
      {"p99", quantile(samples, 0.99)}};
}

OverRanks over_ranks(const std::vector<double>& own, at::Device device, Communicator& communicator) {
  const at::Tensor sent = at::tensor(own, at::kDouble).to(device);
  const at::Tensor all = communicator.all_gather(sent, Purpose::control).cpu();  // [ranks, samples]
  const auto numbers = [](const at::Tensor& t) {
    const double* const begin = t.const_data_ptr<double>();
    return std::vector<double>(begin, begin + t.numel());
  };
  return {numbers(all.mean(0)), numbers(all.amin(0)), numbers(all.amax(0))};
}

}  // namespace bnlab
