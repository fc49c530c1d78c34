// Hands in a process group of its own, where own_network.cpp asks the launcher:
//   torchrun --nproc-per-node 2 --no-python ./process_group
#include <torch/torch.h>
#include <bnlab.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <iostream>

int main() try {
  const int rank = std::atoi(std::getenv("RANK")), size = std::atoi(std::getenv("WORLD_SIZE"));
  c10d::TCPStoreOptions at;
  at.port = static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT")));
  at.isServer = rank == 0;
  const auto store = c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), at);
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  group->setDefaultBackend(c10d::ProcessGroup::GLOO);

  const bnlab::Ranks ranks(group);
  bnlab::BatchNorm norm(bnlab::BatchNormOptions(1).strategy("sync").ranks(ranks));
  norm->forward(torch::full({2, 1, 1, 1}, static_cast<float>(rank)));
  if (ranks.rank() == 0) std::cout << "running mean " << norm->running_mean.item<float>() << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
