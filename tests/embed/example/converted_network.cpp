// Goes on from PyTorch's checkpoint with a stock network whose BatchNorm2d layers are exchanged for
// synchronised ones, and hands a checkpoint back:
//   torchrun --nproc-per-node 2 --no-python ./converted_network FROM.pt TO.pt
// FROM.pt is what Python's torch.save(dict(model.state_dict()), "FROM.pt") writes, TO.pt what
// model.load_state_dict(torch.load("TO.pt")) reads.
#include <torch/torch.h>
#include <bnlab.hpp>

#include <iostream>

namespace nn = torch::nn;

nn::Sequential stock_network() {
  nn::Sequential net;
  for (const int64_t inputs : {3, 8}) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(inputs, 8, 3).padding(1).bias(false)));
    net->push_back(nn::BatchNorm2d(8));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(8, 4));
  return net;
}

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: converted_network FROM.pt TO.pt\n";
    return 2;
  }
  nn::Sequential net = stock_network();
  const bnlab::Ranks ranks = bnlab::Ranks::from_environment();
  const int64_t layers = bnlab::convert(*net, bnlab::BatchNormOptions().strategy("sync").ranks(ranks));
  if (ranks.rank() == 0) {
    bnlab::load_state_dict(*net, argv[1]);  // DataParallel sends it to the others
    std::cout << "converted " << layers << " layers\n";
  }
  bnlab::DataParallel parallel(*net, ranks);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  // Two batches of 9 made-up images, the same in Python.
  for (int step = 0; step < 2; ++step) {
    const torch::Tensor images =
        (torch::arange(9 * 3 * 8 * 8, torch::kFloat) * 0.37 + step).sin().view({9, 3, 8, 8});
    const torch::Tensor labels = torch::arange(9).remainder(4);
    const auto [first, end] = ranks.share(9);
    const torch::Tensor loss =
        torch::cross_entropy_loss(net->forward(images.slice(0, first, end)), labels.slice(0, first, end));
    optimizer.zero_grad();
    parallel.backward(loss, end - first);
    optimizer.step();
  }
  if (ranks.rank() == 0) bnlab::save_state_dict(*net, argv[2]);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
