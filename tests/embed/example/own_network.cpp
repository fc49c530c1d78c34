// Trains a small network of its own on made-up images, on as many ranks as the launcher has started:
//   torchrun --nproc-per-node 2 --no-python ./own_network [STRATEGY]
// single_process.cpp is the same program before it knew of ranks.
#include <torch/torch.h>
#include <bnlab.hpp>

#include <iostream>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& images) { return head(norm(conv(images)).relu().mean({2, 3})); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 8, 3).bias(false)};
  bnlab::BatchNorm norm{8};
  torch::nn::Linear head{8, 4};
};
TORCH_MODULE(Net);

int main(int argc, char** argv) try {
  torch::manual_seed(0);
  const torch::Tensor images = torch::rand({21, 3, 12, 12}), labels = torch::arange(21).remainder(4);

  const bnlab::Ranks ranks = bnlab::Ranks::from_environment();
  Net net;
  bnlab::convert(*net, bnlab::BatchNormOptions().strategy(argc > 1 ? argv[1] : "sync").ranks(ranks));
  bnlab::DataParallel parallel(*net, ranks);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int64_t begin = 0; begin < images.size(0); begin += 8) {  // the last batch has 5 images
      const int64_t rows = std::min<int64_t>(8, images.size(0) - begin);
      const auto [before, behind] = ranks.share(rows);
      const int64_t first = begin + before, end = begin + behind;
      const torch::Tensor loss =
          torch::cross_entropy_loss(net(images.slice(0, first, end)), labels.slice(0, first, end));
      optimizer.zero_grad();
      parallel.backward(loss, behind - before);
      optimizer.step();
    }
    net->eval();
    const torch::Tensor answers = net(images);
    net->train();
    if (ranks.rank() != 0) continue;
    std::cout << "epoch " << epoch << " loss " << torch::cross_entropy_loss(answers, labels).item<float>()
              << '\n';
  }
  if (ranks.rank() == 0) torch::save(net, "net.pt");
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
