#include "harness/training/gradient_routes.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/support/random.hpp"

namespace bnlab {
namespace {

void on_ranks(int ranks, const std::function<void(World&)>& body) {
  prepare_thread_ranks();
  on_thread_ranks(ranks, at::kCPU, body);
}

at::Tensor of_rank(int rank, int64_t index, at::IntArrayRef shape) {
  Stream stream(11, "tensor", static_cast<uint64_t>(index * 16 + rank));
  at::Tensor values = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data_ptr<double>()[i] = stream.normal();
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
  for (int rank = 0; rank < ranks; ++rank) sum += of_rank(rank, index, kShapes[static_cast<size_t>(index)]);
  return sum / ranks;
}

struct Case {
  GradientRoute route;
  int64_t collectives;  // per step
  int ranks;
};

class GradientRoutes : public ::testing::TestWithParam<Case> {};

TEST_P(GradientRoutes, AveragesTheGradientsToTheSameBitsOnEveryRank) {
  const auto& [way, collectives, ranks] = GetParam();
  std::vector<std::vector<at::Tensor>> averaged(static_cast<size_t>(ranks));
  on_ranks(ranks, [&, way = way](World& world) {
    const auto parameters = parameters_of(world.rank());
    RunSpec spec;
    spec.gradient_route = way;
    const auto route = make_gradient_sync(spec, {.parameters = parameters}, world);
    route->before_forward();
    route->before_backward();
    route->after_backward();
    route->exchange();
    for (const at::Tensor& parameter : parameters) {
      averaged[static_cast<size_t>(world.rank())].push_back(parameter.grad().clone());
      EXPECT_TRUE(parameter.equal(at::ones_like(parameter)));
    }
    route->after_step(1);
    for (const at::Tensor& parameter : parameters)
      EXPECT_FALSE(parameter.grad().defined()) << "the gradients are dropped after the step";
  });
  for (const auto& of_one_rank : averaged) {
    ASSERT_EQ(of_one_rank.size(), kShapes.size());
    for (size_t i = 0; i < kShapes.size(); ++i) {
      EXPECT_TRUE(of_one_rank[i].allclose(mean_over_ranks(ranks, static_cast<int64_t>(i)), 0, 1e-15));
      EXPECT_TRUE(of_one_rank[i].equal(averaged[0][i]));
    }
  }
}

TEST_P(GradientRoutes, BooksItsExchangesAsGradients) {
  const auto& [way, collectives, ranks] = GetParam();
  on_ranks(ranks, [way = way, collectives = collectives](World& world) {
    const auto parameters = parameters_of(world.rank());
    RunSpec spec;
    spec.gradient_route = way;
    const auto route = make_gradient_sync(spec, {.parameters = parameters}, world);
    world.ledger().clear();
    route->after_backward();
    route->exchange();
    const Traffic& traffic = world.ledger().of(Purpose::gradients);
    EXPECT_EQ(traffic.collectives, collectives);
    EXPECT_EQ(traffic.bytes, collectives * 8 * (6 + 5 + 54 + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Routes, GradientRoutes,
                         ::testing::Values(Case{GradientRoute::rank0, 2, 1}, Case{GradientRoute::rank0, 2, 2},
                                           Case{GradientRoute::host, 1, 1}, Case{GradientRoute::host, 1, 2}),
                         [](const auto& info) {
                           return name_of(info.param.route) + "_" + std::to_string(info.param.ranks);
                         });

std::unique_ptr<GradientSync> make_averaging(int64_t every, Trained trained, World& world) {
  RunSpec spec;
  spec.average_weights_every = every;
  return make_gradient_sync(spec, std::move(trained), world);
}

class WeightAverage : public ::testing::TestWithParam<int> {};

TEST_P(WeightAverage, ReplacesTensorsByTheirMeanInPlace) {
  const int ranks = GetParam();
  std::vector<std::vector<at::Tensor>> averaged(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < kShapes.size(); ++i)
      tensors.push_back(laid_out(of_rank(world.rank(), static_cast<int64_t>(i), kShapes[i])));
    tensors[0].requires_grad_();             // as a weight does
    tensors[1] = tensors[1].to(at::kFloat);  // a second dtype
    const Trained trained = {.parameters = {tensors[0]},
                             .optimizer_state = {tensors.begin() + 1, tensors.end()}};
    const auto averaging = make_averaging(1, trained, world);
    world.ledger().clear();
    averaging->after_step(1);
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

TEST_P(WeightAverage, HappensEveryFewStepsAndAfterTheLast) {
  on_ranks(GetParam(), [](World& world) {
    const auto parameters = parameters_of(world.rank());
    const auto averaging = make_averaging(2, {.parameters = parameters, .steps = 5}, world);
    world.ledger().clear();
    std::vector<int64_t> exchanges;
    for (int step = 0; step < 5; ++step) {
      averaging->after_step(step + 1);
      exchanges.push_back(world.ledger().of(Purpose::gradients).collectives);
    }
    EXPECT_EQ(exchanges, (std::vector<int64_t>{0, 1, 1, 2, 3}));
  });
}

TEST_P(WeightAverage, LeavesEachRankItsOwnGradients) {
  on_ranks(GetParam(), [](World& world) {
    const auto parameters = parameters_of(world.rank());
    const auto averaging = make_averaging(2, {.parameters = parameters, .steps = 9}, world);
    world.ledger().clear();
    averaging->before_forward();
    averaging->before_backward();
    averaging->after_backward();
    averaging->exchange();
    EXPECT_EQ(world.ledger().of(Purpose::gradients).collectives, 0);
    for (size_t i = 0; i < kShapes.size(); ++i)
      EXPECT_TRUE(parameters[i].grad().equal(of_rank(world.rank(), static_cast<int64_t>(i), kShapes[i])));
    averaging->after_step(1);
    EXPECT_FALSE(parameters[0].grad().defined());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WeightAverage, ::testing::Values(1, 2));

}  // namespace
}  // namespace bnlab
