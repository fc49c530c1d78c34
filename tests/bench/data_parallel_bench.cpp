// One rank of a U-Net in LibTorch with bnlab's layers and DataParallel, which data_parallel_bench.py measures
// beside the same network in Python:
//   data_parallel_bench STRATEGY IMAGES THREADS      (with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
// Prints the number of parameters; then trains as many steps as a line on standard input says, and prints
// their seconds, until the input ends.
#include <torch/torch.h>
#include <bnlab.hpp>

#include <chrono>
#include <iostream>
#include <string>

namespace {

namespace nn = torch::nn;
constexpr int64_t kClasses = 5, kHeight = 96, kWidth = 128;

nn::Sequential conv_norm_twice(int64_t into, int64_t out, const bnlab::BatchNormOptions& norm) {
  nn::Sequential block;
  for (int i = 0; i < 2; ++i) {
    block->push_back(nn::Conv2d(nn::Conv2dOptions(i == 0 ? into : out, out, 3).padding(1).bias(false)));
    block->push_back(bnlab::BatchNorm(bnlab::BatchNormOptions(norm).num_features(out).relu(true)));
  }
  return block;
}

// As `unet` in rivals.py: widths 16, 32, 64.
struct UNet : nn::Module {
  explicit UNet(const bnlab::BatchNormOptions& norm) {
    down1 = register_module("down1", conv_norm_twice(3, 16, norm));
    down2 = register_module("down2", conv_norm_twice(16, 32, norm));
    down3 = register_module("down3", conv_norm_twice(32, 64, norm));
    up2 = register_module("up2", conv_norm_twice(96, 32, norm));
    up1 = register_module("up1", conv_norm_twice(48, 16, norm));
    head = register_module("head", nn::Conv2d(nn::Conv2dOptions(16, kClasses, 1)));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    namespace F = nn::functional;
    const auto half = [](const torch::Tensor& x) { return torch::max_pool2d(x, 2); };
    const auto twice = [](const torch::Tensor& x) {
      return F::interpolate(x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}));
    };
    const torch::Tensor first = down1->forward(images), second = down2->forward(half(first));
    const torch::Tensor third = down3->forward(half(second));
    const torch::Tensor raised = up2->forward(torch::cat({twice(third), second}, 1));
    return head(up1->forward(torch::cat({twice(raised), first}, 1)));
  }

  nn::Sequential down1, down2, down3, up2, up1;
  nn::Conv2d head{nullptr};
};

void serve(const std::string& strategy, int64_t images_per_rank) {
  const bnlab::Ranks ranks = bnlab::Ranks::from_environment();
  torch::manual_seed(1);
  UNet net(bnlab::BatchNormOptions().strategy(strategy).ranks(ranks));
  net.to(torch::kFloat);
  for (torch::Tensor& parameter : net.parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.to(torch::MemoryFormat::ChannelsLast));
  int64_t count = 0;
  for (const torch::Tensor& parameter : net.parameters()) count += parameter.numel();
  std::cout << count << std::endl;
  bnlab::DataParallel parallel(net, ranks);
  torch::optim::SGD optimizer(net.parameters(),
                              torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  const torch::Tensor images =
      torch::randn({images_per_rank, 3, kHeight, kWidth}).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor labels = torch::randint(kClasses, {images_per_rank, kHeight, kWidth});
  for (int64_t steps = 0; std::cin >> steps;) {
    ranks.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < steps; ++step) {
      const torch::Tensor loss = torch::cross_entropy_loss(net.forward(images), labels);
      optimizer.zero_grad();
      parallel.backward(loss, images_per_rank);
      optimizer.step();
    }
    std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::cerr << "usage: data_parallel_bench STRATEGY IMAGES THREADS\n";
    return 2;
  }
  torch::set_num_threads(std::stoi(argv[3]));
  serve(argv[1], std::stol(argv[2]));
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
