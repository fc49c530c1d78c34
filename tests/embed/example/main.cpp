// Trains a small network whose norm layers are those of the strategy named on the command line, then prints
// by how much one of its layers differs from torch::nn::BatchNorm2d on the whole batch, in training and in
// evaluation.
//   embedding STRATEGY TOWERS
#include <torch/torch.h>
#include <bnlab.hpp>

#include <iostream>
#include <string>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: embedding STRATEGY TOWERS\n";
    return 2;
  }
  torch::manual_seed(0);
  const torch::Tensor images = torch::rand({4, 3, 16, 16});
  const torch::Tensor labels = torch::arange(4);

  bnlab::Norms norms(argv[1], {.towers = std::stoll(argv[2])});
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).bias(false)), norms.layer(8),
                            torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(),
                            torch::nn::Linear(8, 4));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor loss = torch::cross_entropy_loss(net->forward(images), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::cout << "loss " << loss.item<float>() << '\n';
  }

  torch::nn::BatchNorm2d whole(3);
  const auto layer = norms.layer(3);
  const auto difference = [&] {
    return (layer->forward(images) - whole->forward(images)).abs().max().item<float>();
  };
  std::cout << "difference in training " << difference() << '\n';
  layer->eval();
  whole->eval();
  std::cout << "difference in evaluation " << difference() << '\n';
} catch (const std::exception& error) {
  std::cerr << "embedding: " << error.what() << '\n';
  return 1;
}
