#include "harness/training/gradient_routes.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/random.hpp"

namespace bnlab {
namespace {

void on_ranks(int ranks, const std::function<void(World&)>& body) {
  prepare_thread_ranks();
  on_thread_ranks(ranks, at::kCPU, body);
}

at::Tensor of_rank(int rank, int64_t index, at::IntArrayRef shape) {
  Stream stream(11, "tensor", static_cast<uint64_t>(index * 16 + rank));
  at::Tensor values = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<double>()[i] = stream.normal();
  }
  return values;
}

// A matrix, a vector, a convolution in channels_last and a scalar.
const std::vector<std::vector<int64_t>> kShapes = {{3, 2}, {5}, {2, 3, 3, 3}, {}};

at::Tensor laid_out(const at::Tensor& t) {
  return t.dim() == 4 ? t.contiguous(at::MemoryFormat::ChannelsLast) : t;
}

// Parameters (the same everywhere) with the gradients of one rank.
std::vector<at::Tensor> parameters_of(int rank) {
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back(laid_out(at::ones(kShapes[i], at::kDouble)).requires_grad_());
    parameters.back().mutable_grad() = laid_out(of_rank(rank, static_cast<int64_t>(i), kShapes[i]));
  }
  return parameters;
}

at::Tensor mean_over_ranks(int ranks, int64_t index) {
  at::Tensor sum = at::zeros(kShapes[static_cast<size_t>(index)], at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    sum += of_rank(rank, index, kShapes[static_cast<size_t>(index)]);
  }
  return sum / ranks;
}

using MakeRoute = std::function<std::unique_ptr<GradientSync>(const std::vector<at::Tensor>&, World&)>;

const MakeRoute kRank0 = [](const std::vector<at::Tensor>& parameters, World& world) {
  return make_rank0_route(parameters, world.gradients());
};
const MakeRoute kHost = [](const std::vector<at::Tensor>& parameters, World& world) {
  return make_host_route(parameters, world.host());
};

struct Case {
  const char* name;
  MakeRoute make;
  int64_t collectives;  // per step
  int ranks;
};

class GradientRoute : public ::testing::TestWithParam<Case> {};

TEST_P(GradientRoute, AveragesTheGradientsToTheSameBitsOnEveryRank) {
  const auto& [name, make, collectives, ranks] = GetParam();
  std::vector<std::vector<at::Tensor>> averaged(static_cast<size_t>(ranks));
  on_ranks(ranks, [&, make = make](World& world) {
    const auto parameters = parameters_of(world.rank());
    const auto route = make(parameters, world);
    route->before_forward();
    route->before_backward();
    route->after_backward();
    for (const at::Tensor& parameter : parameters) {
      averaged[static_cast<size_t>(world.rank())].push_back(parameter.grad().clone());
      EXPECT_TRUE(parameter.equal(at::ones_like(parameter)));
    }
    route->after_step();
    for (const at::Tensor& parameter : parameters) {
      EXPECT_FALSE(parameter.grad().defined()) << "the gradients are dropped after the step";
    }
  });
  for (const auto& of_one_rank : averaged) {
    ASSERT_EQ(of_one_rank.size(), kShapes.size());
    for (size_t i = 0; i < kShapes.size(); ++i) {
      EXPECT_TRUE(of_one_rank[i].allclose(mean_over_ranks(ranks, static_cast<int64_t>(i)), 0, 1e-15));
      EXPECT_TRUE(of_one_rank[i].equal(averaged[0][i]));
    }
  }
}

TEST_P(GradientRoute, BooksItsExchangesAsGradients) {
  const auto& [name, make, collectives, ranks] = GetParam();
  on_ranks(ranks, [make = make, collectives = collectives](World& world) {
    const auto parameters = parameters_of(world.rank());
    const auto route = make(parameters, world);
    world.ledger().clear();
    route->after_backward();
    const Traffic& traffic = world.ledger().of(Purpose::gradients);
    EXPECT_EQ(traffic.collectives, collectives);
    EXPECT_EQ(traffic.bytes, collectives * 8 * (6 + 5 + 54 + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Routes, GradientRoute,
                         ::testing::Values(Case{"rank0", kRank0, 2, 1}, Case{"rank0", kRank0, 2, 2},
                                           Case{"host", kHost, 1, 1}, Case{"host", kHost, 1, 2}),
                         [](const auto& info) {
                           return info.param.name + std::string("_") + std::to_string(info.param.ranks);
                         });

class WeightAverage : public ::testing::TestWithParam<int> {};

TEST_P(WeightAverage, ReplacesTensorsByTheirMeanInPlace) {
  const int ranks = GetParam();
  std::vector<std::vector<at::Tensor>> averaged(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < kShapes.size(); ++i) {
      tensors.push_back(laid_out(of_rank(world.rank(), static_cast<int64_t>(i), kShapes[i])));
    }
    tensors[0].requires_grad_();             // as a weight does
    tensors[1] = tensors[1].to(at::kFloat);  // a second dtype
    WeightAveraging averaging({tensors[0]}, world.gradients());
    world.ledger().clear();
    averaging.average(tensors);
    EXPECT_EQ(world.ledger().of(Purpose::gradients).collectives, 2);
    EXPECT_TRUE(tensors[0].requires_grad());
    averaged[static_cast<size_t>(world.rank())] = tensors;
  });
  for (const auto& of_one_rank : averaged) {
    ASSERT_EQ(of_one_rank.size(), kShapes.size());
    for (size_t i = 0; i < kShapes.size(); ++i) {
      const at::Tensor expected = mean_over_ranks(ranks, static_cast<int64_t>(i));
      EXPECT_TRUE(of_one_rank[i].to(at::kDouble).allclose(expected, 0, i == 1 ? 1e-6 : 1e-15));
      EXPECT_TRUE(of_one_rank[i].equal(averaged[0][i]));
    }
  }
}

TEST_P(WeightAverage, LeavesEachRankItsOwnGradients) {
  on_ranks(GetParam(), [](World& world) {
    const auto parameters = parameters_of(world.rank());
    WeightAveraging averaging(parameters, world.gradients());
    world.ledger().clear();
    averaging.before_forward();
    averaging.before_backward();
    averaging.after_backward();
    EXPECT_EQ(world.ledger().of(Purpose::gradients).collectives, 0);
    for (size_t i = 0; i < kShapes.size(); ++i) {
      EXPECT_TRUE(parameters[i].grad().equal(of_rank(world.rank(), static_cast<int64_t>(i), kShapes[i])));
    }
    averaging.after_step();
    EXPECT_FALSE(parameters[0].grad().defined());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WeightAverage, ::testing::Values(1, 2));

}  // namespace
}  // namespace bnlab
