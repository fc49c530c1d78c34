// Ranks that hand in a process group: threads of this process over Gloo.
#pragma once

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <future>
#include <string>
#include <utility>

#include "nets.hpp"

namespace bnlab {

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] inline const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

inline Group group_of(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::seconds(20);
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::GLOO);
  return group;
}

// What `body` returns on each of two ranks.
template <class Body>
auto on_two_ranks(const Body& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto on_rank = [&](int rank) { return body(Ranks(group_of(store, rank, 2))); };
  auto other = std::async(std::launch::async, on_rank, 1);
  auto first = on_rank(0);
  return std::pair(std::move(first), other.get());
}

inline BatchNormOptions synced(const Ranks& ranks) {
  return BatchNormOptions(kChannels).strategy("sync").ranks(ranks);
}

// A step of `layer` on this rank's rows of x.
template <class Layer>
Trained train_part(Layer& layer, const at::Tensor& x, int64_t first, int64_t end) {
  return train(layer, x.slice(0, first, end), batch(x.size(0), 99).slice(0, first, end));
}

inline torch::nn::Sequential small_net(const Ranks& ranks, uint64_t seed,
                                       const std::string& strategy = "sync") {
  namespace nn = torch::nn;
  torch::manual_seed(seed);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(kChannels, 4, 3).bias(false)),
                     BatchNorm(BatchNormOptions(4).strategy(strategy).ranks(ranks).relu(true)),
                     nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(4, 2));
  net->to(at::kDouble);
  return net;
}

}  // namespace bnlab
