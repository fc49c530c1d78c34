// What share of the copy bandwidth the kernels of the BN layers reach: the bytes of a kernel's tensors, each
// read or written once, by its time, over those of a copy. Medians of interleaved rounds; on a GPU a round is
// ten launches between two events.
//   bandwidth_bench [--device cpu|cuda] [--megabytes N] [--rounds N]
// Prints one JSON object per kernel, dtype and layout.
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "harness/error.hpp"
#include "harness/json.hpp"
#include "strategies/kernels/sweeps.hpp"

namespace bnlab {
namespace {

constexpr int64_t kChannels = 64, kSide = 128;
constexpr int kWarmUp = 3;

struct Request {
  at::Device device = at::kCPU;
  int64_t megabytes = 64;
  int rounds = 15;
};

struct Kernel {
  const char* name;
  int tensors;  // of the size of x that it reads or writes
  std::function<void()> launch;
};

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--device") {
      request.device = at::Device(arguments[i + 1]);
    } else if (arguments[i] == "--megabytes") {
      request.megabytes = std::stoll(arguments[i + 1]);
    } else if (arguments[i] == "--rounds") {
      request.rounds = std::stoi(arguments[i + 1]);
    } else {
      throw Error(Error::Kind::usage, "unknown option " + arguments[i]);
    }
  }
  if (request.device.is_cuda() && !at::hasCUDA()) {
    throw Error(Error::Kind::environment, "LibTorch sees no GPU here; give --device cpu");
  }
  return request;
}

double milliseconds(const std::function<void()>& launch, at::Device device) {
  if (device.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    launch();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  constexpr int kLaunches = 10;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  for (int i = 0; i < kLaunches; ++i) {
    launch();
  }
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end) / kLaunches;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(const Request& request, at::ScalarType type, at::MemoryFormat format) {
  const int64_t image = kChannels * kSide * kSide * static_cast<int64_t>(at::elementSize(type));
  const int64_t images = std::max<int64_t>(1, (request.megabytes << 20) / image);
  const auto options = at::TensorOptions().device(request.device);
  const auto activations = [&] {
    return at::randn({images, kChannels, kSide, kSide}, options).to(type).contiguous(format);
  };
  const at::Tensor x = activations(), dy = activations(), y = activations().relu_(), copy = at::empty_like(x);
  const at::Tensor a = at::rand({1, kChannels}, options) + 0.5, b = at::randn({1, kChannels}, options);
  const kernels::Offsets all{0, images};
  const std::vector<Kernel> measured{
      {"copy", 2, [&] { at::Tensor(copy).copy_(x); }},
      {"moments", 1, [&] { kernels::moments(x, all); }},
      {"normalise", 2, [&] { kernels::normalise(x, all, b, a, b, Activation::relu, {}); }},
      // 16-bit rows read y, too: what it would take to compute it does not fit into registers.
      {"backward_sums",
       request.device.is_cuda() && at::elementSize(type) == 2 && format == at::MemoryFormat::ChannelsLast ? 3
                                                                                                          : 2,
       [&] {
         kernels::backward_sums(dy, x, y, all, b, Activation::relu, {a, b});
       }},
      {"backward_input", 3,
       [&] {
         kernels::backward_input(dy, x, y, all, b, a, b, b, Activation::relu, {a, b});
       }},
      {"backward_residual", 3, [&] { kernels::backward_residual(dy, y, Activation::relu); }}};
  std::vector<std::vector<double>> times(measured.size());
  for (int round = -kWarmUp; round < request.rounds; ++round) {
    for (size_t k = 0; k < measured.size(); ++k) {
      const double ms = milliseconds(measured[k].launch, request.device);
      if (round >= 0) {
        times[k].push_back(ms);
      }
    }
  }
  const auto gigabytes_per_s = [&](size_t k) {
    return static_cast<double>(measured[k].tensors * images * image) / median(times[k]) * 1e-6;
  };
  for (size_t k = 1; k < measured.size(); ++k) {
    std::cout << Json{{"kernel", measured[k].name},
                      {"dtype", c10::toString(type)},
                      {"layout", format == at::MemoryFormat::ChannelsLast ? "channels_last" : "contiguous"},
                      {"megabytes", images * image >> 20},
                      {"ms", median(times[k])},
                      {"GB_per_s", gigabytes_per_s(k)},
                      {"copy_GB_per_s", gigabytes_per_s(0)},
                      {"share_of_copy", gigabytes_per_s(k) / gigabytes_per_s(0)}}
                     .dump()
              << std::endl;
  }
}

}  // namespace
}  // namespace bnlab

int main(int argc, char** argv) {
  try {
    const bnlab::Request request = bnlab::parse({argv + 1, argv + argc});
    const at::NoGradGuard no_grad;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
        bnlab::measure(request, type, format);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bandwidth_bench: " << error.what() << "\n";
    return 3;
  }
}
