// Layers and DataParallel on ranks that hand in a process group of NCCL: threads of this process, a GPU each.
// Without two GPUs these tests skip themselves.
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "two_ranks.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

class CudaRanksHandedIn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() < 2)
      GTEST_SKIP() << "needs 2 GPUs, there are " << c10::cuda::device_count();
  }

  // What `body` returns on each of two ranks, of which each has its GPU as the current one.
  template <class Body>
  static auto on_two_gpus(const Body& body) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto on_rank = [&](int rank) {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(rank));
      const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, 2);
      const auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, 2);
      group->setBackend(at::kCUDA, c10d::ProcessGroup::NCCL, nccl);
      group->setDefaultBackend(c10d::ProcessGroup::NCCL);
      auto result = body(Ranks(group), at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(rank)));
      nccl->shutdown();
      return result;
    };
    auto other = std::async(std::launch::async, on_rank, 1);
    auto first = std::async(std::launch::async, on_rank, 0);
    auto result = first.get();
    return std::pair(std::move(result), other.get());
  }
};

TEST_F(CudaRanksHandedIn, TogetherAreBatchNormOfTheWholeBatchHoweverUneven) {
  nn::BatchNorm2d plain = plain_norm();
  const Trained whole = train(plain, batch(8, 0), batch(8, 99));
  for (const int64_t here : {4, 5, 8}) {  // rows of rank 0, of 8
    const auto [first, second] = on_two_gpus([&](const Ranks& ranks, at::Device device) {
      BatchNorm layer = norm_of(synced(ranks));
      layer->to(device);
      const auto [begin, end] =
          ranks.rank() == 0 ? std::pair<int64_t, int64_t>(0, here) : std::pair(here, int64_t{8});
      const Trained trained = train(layer, batch(8, 0).slice(0, begin, end).to(device),
                                    batch(8, 99).slice(0, begin, end).to(device));
      return std::vector<at::Tensor>{trained.y.cpu(), trained.dx.cpu(), trained.dweight.cpu(),
                                     layer->running_var.cpu()};
    });
    EXPECT_LT(difference(at::cat({first[0], second[0]}), whole.y), 1e-10);
    EXPECT_LT(difference(at::cat({first[1], second[1]}), whole.dx), 1e-10);
    EXPECT_LT(difference(first[2] + second[2], whole.dweight), 1e-9);
    EXPECT_LT(difference(first[3], plain->running_var), 1e-10);
    EXPECT_EQ(difference(first[3], second[3]), 0);
  }
}

// The gradients of two ranks are those of their whole batch on one CPU rank, and both hold the same bits.
TEST_F(CudaRanksHandedIn, AverageTheGradientsOfTheirSamples) {
  const auto gradients_of = [](nn::Sequential& net) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : net->parameters())
      gradients.push_back(parameter.grad().flatten().cpu());
    return at::cat(gradients);
  };
  for (const char* strategy : {"sync", "per_tower"}) {
    std::mutex drawing;  // both draw from LibTorch's one generator
    const auto [first, second] = on_two_gpus([&](const Ranks& ranks, at::Device device) {
      nn::Sequential net = [&] {
        const std::lock_guard lock(drawing);
        return small_net(ranks, 1, strategy);
      }();
      net->to(device);
      DataParallel parallel(*net, ranks);
      const auto [begin, end] = ranks.share(8);
      parallel.backward(net->forward(batch(8, 0).slice(0, begin, end).to(device)).square().mean(),
                        end - begin);
      return gradients_of(net);
    });
    EXPECT_EQ(difference(first, second), 0) << strategy;
    nn::Sequential net = small_net({}, 1, strategy);
    BatchNormOptions two = BatchNormOptions(4).strategy(strategy).towers_per_rank(2).relu(true);
    net->children()[1]->as<BatchNormImpl>()->set_options(two);
    net->to(at::kDouble);
    net->forward(batch(8, 0)).square().mean().backward();
    EXPECT_LT(difference(first, gradients_of(net)), 1e-10) << strategy;
  }
}

}  // namespace
}  // namespace bnlab
#endif
