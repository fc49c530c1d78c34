// What share of the copy bandwidth the kernels of the BN layers reach, on the shapes of real sites: the bytes
// of a kernel's tensors, each read or written once, by its time, over those of a copy. Medians of interleaved
// rounds. On a GPU a round is ten launches between two events, queued while the GPU is busy with something
// else, so that the host's pace does not count; they go round over tensors of `megabytes` in all, which no
// cache holds.
//   bandwidth_bench [--device cpu|cuda] [--megabytes N] [--rounds N] [--trial yes]
// --trial yes takes tiny shapes, to see that the program runs. Prints one JSON object per site, kernel, dtype
// and layout. On a GPU it has the least share that is asked for (`bar`) and a verdict, ok or slow. The bars
// are goals from arithmetic: what a launch and a merge must cost beside the traffic of that size.
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

#include "harness/support/error.hpp"
#include "harness/support/json.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {
namespace {

constexpr int kWarmUp = 3, kLaunches = 10;

struct Request {
  at::Device device = at::kCPU;
  int64_t megabytes = 64;
  int rounds = 15;
  bool trial = false;
};

// A norm site with the images of one GPU. Bars: the least share of a copy's rate that is asked of kernels
// which write a tensor of x's size, and of those which reduce it to sums.
struct Site {
  std::string name;
  int64_t images, channels, height, width;
  double sweep_bar, reduction_bar;
};

// Odd planes (237 x 237, 7 x 7) cannot be read in vectors where the layout is contiguous. Images of the site
// "large" fill `megabytes`.
const std::vector<Site> kSites{
    {"large", 0, 64, 128, 128, 0.85, 0.85},         {"pspnet stem", 2, 64, 237, 237, 0.80, 0.65},
    {"pspnet stage 2", 2, 512, 60, 60, 0.75, 0.50}, {"pspnet stage 4", 2, 2048, 30, 30, 0.75, 0.50},
    {"resnet stage 4", 32, 2048, 7, 7, 0.75, 0.50}, {"unet top", 8, 16, 96, 128, 0.65, 0.40}};

// What one launch works on; `made` holds on to its result until these tensors are used again.
struct Tensors {
  at::Tensor x, dy, y, copy, made;
};

struct Kernel {
  std::string name;
  int tensors;  // of the size of x that it reads or writes
  bool reduces;
  std::function<at::Tensor(Tensors&)> launch;
};

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2)
    if (arguments[i] == "--device")
      request.device = at::Device(arguments[i + 1]);
    else if (arguments[i] == "--megabytes")
      request.megabytes = std::stoll(arguments[i + 1]);
    else if (arguments[i] == "--rounds")
      request.rounds = std::stoi(arguments[i + 1]);
    else if (arguments[i] == "--trial")
      request.trial = arguments[i + 1] == "yes";
    else
      throw Error(Error::Kind::usage, "unknown option " + arguments[i]);
  if (request.device.is_cuda() && !at::hasCUDA())
    throw Error(Error::Kind::environment, "LibTorch sees no GPU here; give --device cpu");
  return request;
}

Site sized(Site site, const Request& request, int64_t bytes_per_number) {
  if (request.trial) {
    site = {site.name,
            std::min<int64_t>(site.images, 2),
            std::min<int64_t>(site.channels, 8),
            (site.height + 15) / 16,
            (site.width + 15) / 16,
            site.sweep_bar,
            site.reduction_bar};
  }
  const int64_t image = site.channels * site.height * site.width * bytes_per_number;
  if (site.images == 0)
    site.images = request.trial ? 2 : std::max<int64_t>(1, (request.megabytes << 20) / image);
  return site;
}

// Keeps the GPU busy while launches are queued; a third of a millisecond on an H100.
void keep_busy(const Request& request, const at::Tensor& block) {
  for (int i = 0; i < (request.trial ? 0 : 4); ++i) at::Tensor(block).add_(1);
}

// Of one launch.
double milliseconds(const std::function<void()>& launch, const Request& request, const at::Tensor& block) {
  if (request.device.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    launch();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  const c10::DeviceType type = request.device.type();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(type).getStream(request.device);
  c10::Event begin(type, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(type, c10::EventFlag::BACKEND_DEFAULT);
  keep_busy(request, block);
  begin.record(stream);
  for (int i = 0; i < kLaunches; ++i) launch();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end) / kLaunches;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(const Request& request, const Site& asked, at::ScalarType type, at::MemoryFormat format) {
  const auto number = static_cast<int64_t>(at::elementSize(type));
  const Site site = sized(asked, request, number);
  const int64_t bytes = site.images * site.channels * site.height * site.width * number;
  const auto options = at::TensorOptions().device(request.device);
  const auto activations = [&] {
    return at::randn({site.images, site.channels, site.height, site.width}, options)
        .to(type)
        .contiguous(format);
  };
  const int64_t copies = request.trial ? 2 : std::max<int64_t>(1, (request.megabytes << 20) / bytes);
  std::vector<Tensors> all(static_cast<size_t>(copies));
  for (Tensors& t : all) {
    t = {activations(), activations(), activations().relu_(), {}, {}};
    t.copy = at::empty_like(t.x);
  }
  const at::Tensor a = at::rand({1, site.channels}, options) + 0.5,
                   b = at::randn({1, site.channels}, options);
  const kernels::Offsets rows{0, site.images};
  const std::vector<Kernel> measured{
      {"copy", 2, false, [&](Tensors& t) { return t.copy.copy_(t.x); }},
      {"moments", 1, true, [&](Tensors& t) { return kernels::moments(t.x, rows); }},
      {"normalise", 2, false,
       [&](Tensors& t) { return kernels::normalise(t.x, rows, b, a, b, Activation::relu, {}); }},
      {"backward_sums", 2, true,
       [&](Tensors& t) { return kernels::backward_sums(t.dy, t.x, t.y, rows, b, Activation::relu, {a, b}); }},
      {"backward_input", 3, false,
       [&](Tensors& t) {
         return kernels::backward_input(t.dy, t.x, t.y, rows, b, a, b, b, Activation::relu, {a, b});
       }},
      {"backward_residual", 3, false,
       [&](Tensors& t) { return kernels::backward_residual(t.dy, t.y, Activation::relu); }}};
  const at::Tensor block = at::zeros({request.trial || request.device.is_cpu() ? 1 : 32 << 20}, options);
  std::vector<std::vector<double>> times(measured.size());
  size_t next = 0;
  for (int round = -kWarmUp; round < request.rounds; ++round) {
    for (size_t k = 0; k < measured.size(); ++k) {
      const auto launch = [&] {
        Tensors& t = all[next++ % all.size()];
        t.made = measured[k].launch(t);
      };
      const double ms = milliseconds(launch, request, block);
      if (round >= 0) times[k].push_back(ms);
    }
  }
  const auto gigabytes_per_s = [&](size_t k) {
    return static_cast<double>(measured[k].tensors * bytes) / median(times[k]) * 1e-6;
  };
  for (size_t k = 1; k < measured.size(); ++k) {
    const double share = gigabytes_per_s(k) / gigabytes_per_s(0);
    Json line{{"site", site.name},
              {"shape", {site.images, site.channels, site.height, site.width}},
              {"kernel", measured[k].name},
              {"dtype", c10::toString(type)},
              {"layout", format == at::MemoryFormat::ChannelsLast ? "channels_last" : "contiguous"},
              {"megabytes", static_cast<double>(bytes) / (1 << 20)},
              {"ms", median(times[k])},
              {"GB_per_s", gigabytes_per_s(k)},
              {"copy_GB_per_s", gigabytes_per_s(0)},
              {"share_of_copy", share}};
    if (request.device.is_cuda()) {
      line["bar"] = measured[k].reduces ? site.reduction_bar : site.sweep_bar;
      line["verdict"] = share >= line["bar"] ? "ok" : "slow";
    }
    std::cout << line.dump() << std::endl;
  }
}

}  // namespace
}  // namespace bnlab

int main(int argc, char** argv) {
  try {
    const bnlab::Request request = bnlab::parse({argv + 1, argv + argc});
    const at::NoGradGuard no_grad;
    for (const bnlab::Site& site : bnlab::kSites) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
        for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous})
          bnlab::measure(request, site, type, format);
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bandwidth_bench: " << error.what() << "\n";
    return 3;
  }
}
