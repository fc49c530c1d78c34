// bnlab::BatchNorm beside torch::nn::BatchNorm2d, one process, forward and backward with a ReLU behind, in
// both memory formats and over sizes around the caches: the two take turns, and a line is the median of the
// ratios LibTorch / ours of single turns (above 1: ours is faster), with a ReLU in the layer (fused) and
// behind it.
#include <torch/torch.h>

#include <algorithm>
#include <bnlab.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

double milliseconds(const std::function<at::Tensor(const at::Tensor&)>& layer, const at::Tensor& x,
                    const at::Tensor& dy) {
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor leaf = x.detach().requires_grad_();
  layer(leaf).backward(dy);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void compare(int64_t side, at::MemoryFormat format, int turns) {
  const int64_t channels = 64, rows = 8;
  const at::Tensor x = torch::randn({rows, channels, side, side}).contiguous(format);
  const at::Tensor dy = torch::randn_like(x);
  torch::nn::BatchNorm2d plain(channels);
  bnlab::BatchNorm open(channels), fused(bnlab::BatchNormOptions(channels).relu(true));
  std::vector<double> of_open, of_fused, theirs;
  for (int i = 0; i < turns + 3; ++i) {
    const double libtorch = milliseconds([&](const at::Tensor& t) { return plain(t).relu(); }, x, dy);
    const double behind = milliseconds([&](const at::Tensor& t) { return open(t).relu(); }, x, dy);
    const double within = milliseconds([&](const at::Tensor& t) { return fused(t); }, x, dy);
    if (i >= 3) {
      theirs.push_back(libtorch);
      of_open.push_back(libtorch / behind);
      of_fused.push_back(libtorch / within);
    }
  }
  std::printf("%6.1f MB %-13s  LibTorch %7.2f ms  behind x%.2f  fused x%.2f\n",
              static_cast<double>(x.nbytes()) / 1e6,
              format == at::MemoryFormat::Contiguous ? "contiguous" : "channels_last", median(theirs),
              median(of_open), median(of_fused));
}

}  // namespace

int main() {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const int64_t side : {27, 38, 54, 77, 108})  // 1.5 to 24 MB of float32
      compare(side, format, 41);
}
