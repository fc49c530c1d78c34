// A program of its own on the library, as a rank of another launcher's world: tells which GPU it has got, and
// what `sync` makes there of its number.
#include <torch/torch.h>
#include <bnlab.hpp>

#include <cmath>
#include <exception>
#include <iostream>

int main() try {
  const auto device = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  for (int joined = 0; joined < 2; ++joined) {
    const bnlab::Ranks ranks = bnlab::Ranks::from_environment(device);
    bnlab::BatchNorm norm(bnlab::BatchNormOptions(1).strategy("sync").ranks(ranks));
    norm->to(device);
    const torch::Tensor y = norm(torch::full({2, 1, 1, 1}, static_cast<float>(ranks.rank()), device));
    std::cout << "rank " << ranks.rank() << " on " << y.device() << ": "
              << std::lround(y.mean().item<float>()) << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
